/* Events.  A recording is a mark that the stream's thread sets; an event points to its latest one.  Those between processes
 * have a slot in a shared table instead. */
#include "ipc_event.h"
#include "null_work.h"

struct CUevent_st {
  unsigned flags;
  bool destroyed;
  CUcontext context;
  struct stub_mark *mark;
  struct stub_ipc ipc; /* its slot is NULL: of this process alone */
  bool opened;         /* another process has made it */
  uint64_t captured; /* id of the capture in which it was recorded last, 0: outside */
  struct stub_capture *capture;
  CUgraphNode *nodes;
  size_t count;
  CUevent next; /* of those destroyed */
};
static CUevent spare; /* memory of destroyed events is used again, so that a late use is noticed */

static CUresult valid(CUevent event) {
  return !event || event->destroyed ? CUDA_ERROR_INVALID_HANDLE : __atomic_load_n(&event->context->error, __ATOMIC_RELAXED);
}

/* stub.lock held */
static CUevent make(CUcontext context, unsigned flags, struct stub_ipc ipc) {
  CUevent event = spare ? spare : malloc(sizeof *event);
  if (spare) spare = spare->next;
  *event = (struct CUevent_st){.flags = flags, .context = context, .ipc = ipc};
  return event;
}

CUresult cuEventCreate(CUevent *event, unsigned int flags) {
  ENTER(cuEventCreate);
  CUcontext context;
  struct stub_ipc ipc = {NULL, 0};
  CUresult result = stub_current(&context);
  if (result) return result;
  if (!event || flags > 7) return CUDA_ERROR_INVALID_VALUE;
  if (flags & CU_EVENT_INTERPROCESS && !(flags & CU_EVENT_DISABLE_TIMING)) return CUDA_ERROR_INVALID_VALUE;
  stub_lock();
  if (flags & CU_EVENT_INTERPROCESS) result = stub_ipc_new(&ipc);
  if (!result) *event = make(context, flags, ipc);
  stub_unlock();
  return result;
}

static void forget(CUevent event) {
  stub_mark_drop(event->mark);
  free(event->nodes);
  event->mark = NULL;
  event->nodes = NULL;
  event->capture = NULL;
  event->captured = 0;
}

CUresult cuEventDestroy_v2(CUevent event) {
  ENTER(cuEventDestroy_v2);
  if (!event || event->destroyed) return CUDA_ERROR_INVALID_HANDLE;
  stub_lock();
  forget(event);
  if (event->ipc.slot && !event->opened) stub_ipc_free(event->ipc);
  event->destroyed = true;
  event->next = spare;
  spare = event;
  stub_unlock();
  return CUDA_SUCCESS;
}
FORWARD(cuEventDestroy, cuEventDestroy_v2, (event), CUevent event)

/* stub.lock held */
static CUresult record(CUevent event, CUstream stream) {
  stub_wait_for_room(stream);
  if (!stream->capture && stream->is_legacy && stub_capturing(stream->context, true, true))
    return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  if (stream->capture && stream->capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  forget(event);
  if (stream->capture) {
    event->capture = stream->capture;
    event->captured = stream->capture->id;
    event->count = stream->after_count;
    event->nodes = malloc((event->count + 1) * sizeof *event->nodes);
    if (event->count) memcpy(event->nodes, stream->after, event->count * sizeof *event->nodes);
    return CUDA_SUCCESS;
  }
  if (event->ipc.slot) {
    stub_enqueue(stream, stub_ipc_record(event->ipc), NULL, NULL);
    return CUDA_SUCCESS;
  }
  event->mark = calloc(1, sizeof *event->mark);
  event->mark->refs = 1;
  event->mark->context = stream->context;
  stub_enqueue(stream, NULL, NULL, event->mark);
  return CUDA_SUCCESS;
}

STREAM_CALL(cuEventRecordWithFlags, (event, stream, flags), CUevent event, CUstream stream, unsigned int flags) {
  CUresult result = stub_stream(stream, &stream);
  if (!result) result = valid(event);
  if (result) return result;
  if (flags > CU_EVENT_RECORD_EXTERNAL) return CUDA_ERROR_INVALID_VALUE;
  if (event->context != stream->context) return CUDA_ERROR_INVALID_HANDLE;
  stub_lock();
  result = record(event, stream);
  stub_unlock();
  return result;
}
STREAM_CALL(cuEventRecord, (event, stream), CUevent event, CUstream stream) {
  return cuEventRecordWithFlags_on(event, stream, CU_EVENT_RECORD_DEFAULT);
}

/* What asking and waiting have in common. */
static CUresult may_ask(CUevent event) {
  CUresult result = valid(event);
  if (result) return result;
  stub_lock();
  if (event->captured) {
    if (stub_capture_live(event->capture) && event->capture->id == event->captured) stub_capture_invalidate(event->capture);
    result = CUDA_ERROR_CAPTURED_EVENT;
  }
  stub_unlock();
  return result ? result : stub_unsafe();
}

static bool pending(CUevent event) {
  return event->ipc.slot ? !stub_ipc_done(event->ipc) : event->mark && !event->mark->done;
}

CUresult cuEventQuery(CUevent event) {
  ENTER(cuEventQuery);
  CUresult result = may_ask(event);
  if (result) return result;
  stub_lock();
  result = pending(event) ? CUDA_ERROR_NOT_READY : event->context->error;
  stub_unlock();
  return result;
}

CUresult cuEventSynchronize(CUevent event) {
  ENTER(cuEventSynchronize);
  CUresult result = may_ask(event);
  if (result) return result;
  if (event->ipc.slot) stub_ipc_synchronize(event->ipc);
  stub_lock();
  struct stub_mark *mark = event->mark;
  if (mark) mark->refs++;
  while (mark && !mark->done) pthread_cond_wait(&stub.progress, &stub.lock);
  stub_mark_drop(mark);
  result = event->context->error;
  stub_unlock();
  stub_pools_trim();
  return result;
}

CUresult cuEventElapsedTime_v2(float *milliseconds, CUevent start, CUevent end) {
  ENTER(cuEventElapsedTime_v2);
  CUresult result = valid(start) ? valid(start) : valid(end);
  if (result) return result;
  if (!milliseconds) return CUDA_ERROR_INVALID_VALUE;
  if ((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING) return CUDA_ERROR_INVALID_HANDLE;
  stub_lock();
  if (!start->mark || !end->mark) result = CUDA_ERROR_INVALID_HANDLE;
  else if (!start->mark->done || !end->mark->done) result = CUDA_ERROR_NOT_READY;
  else *milliseconds = (float)((double)(int64_t)(end->mark->done_ns - start->mark->done_ns) / 1e6);
  stub_unlock();
  return result;
}
FORWARD(cuEventElapsedTime, cuEventElapsedTime_v2, (milliseconds, start, end), float *milliseconds, CUevent start, CUevent end)

/* stub.lock held */
static CUresult wait_for(CUstream stream, CUevent event) {
  stub_wait_for_room(stream);
  if (event->captured) {
    if (!stub_capture_live(event->capture) || event->capture->id != event->captured) return CUDA_ERROR_CAPTURED_EVENT;
    return stub_capture_join(stream, event->capture, event->nodes, event->count);
  }
  if (stream->capture && stream->capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (!event->mark && !event->ipc.slot) return CUDA_SUCCESS; /* never recorded */
  if (stream->capture) return stub_capture_invalidate(stream->capture), CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
  if (stream->is_legacy && stub_capturing(stream->context, true, true)) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  stub_enqueue(stream, event->ipc.slot ? stub_ipc_wait(event->ipc) : NULL, event->mark, NULL);
  return CUDA_SUCCESS;
}

STREAM_CALL(cuStreamWaitEvent, (stream, event, flags), CUstream stream, CUevent event, unsigned int flags) {
  CUresult result = stub_stream(stream, &stream);
  if (!result) result = valid(event);
  if (result) return result;
  if (flags > CU_EVENT_WAIT_EXTERNAL) return CUDA_ERROR_INVALID_VALUE;
  stub_lock();
  result = wait_for(stream, event);
  stub_unlock();
  return result;
}

/* Records, or waits for, the work of every stream of a context. */
static CUresult with_all(CUcontext context, CUevent event, bool wait) {
  CUresult result = valid(event);
  if (result) return result;
  stub_lock();
  if (stub_capturing(context, false, true)) result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  else if (!wait) result = CUDA_ERROR_NOT_SUPPORTED; /* not needed so far */
  else
    for (CUstream stream = context->streams; stream && pending(event); stream = stream->next)
      stub_enqueue(stream, event->ipc.slot ? stub_ipc_wait(event->ipc) : NULL, event->mark, NULL);
  stub_unlock();
  return result;
}
CUresult cuCtxRecordEvent(CUcontext context, CUevent event) {
  ENTER(cuCtxRecordEvent);
  emulator_unexpected("cuCtxRecordEvent");
  return with_all(context, event, false);
}
CUresult cuCtxWaitEvent(CUcontext context, CUevent event) {
  ENTER(cuCtxWaitEvent);
  return with_all(context, event, true);
}

CUresult cuIpcGetEventHandle(CUipcEventHandle *handle, CUevent event) {
  ENTER(cuIpcGetEventHandle);
  CUresult result = valid(event);
  if (result) return result;
  if (!handle) return CUDA_ERROR_INVALID_VALUE;
  if (!event->ipc.slot || event->opened) return CUDA_ERROR_INVALID_HANDLE;
  stub_ipc_tell(event->ipc, handle);
  return CUDA_SUCCESS;
}
CUresult cuIpcOpenEventHandle(CUevent *event, CUipcEventHandle handle) {
  ENTER(cuIpcOpenEventHandle);
  CUcontext context;
  struct stub_ipc ipc;
  CUresult result = stub_current(&context);
  if (!result) result = event ? stub_ipc_open(&handle, &ipc) : CUDA_ERROR_INVALID_VALUE;
  if (result) return result;
  stub_lock();
  *event = make(context, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING, ipc);
  (*event)->opened = true;
  stub_unlock();
  return CUDA_SUCCESS;
}
