/* The calls that make, ask and wait for streams. */
#include "stub.h"

CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned int flags, int priority) {
  ENTER(cuStreamCreateWithPriority);
  CUcontext context;
  CUresult result = stub_current(&context);
  if (result) return result;
  if (!stream || flags > CU_STREAM_NON_BLOCKING) return CUDA_ERROR_INVALID_VALUE;
  stub_lock();
  *stream = stub_stream_new(context, flags, priority < -5 ? -5 : priority > 0 ? 0 : priority);
  stub_unlock();
  return CUDA_SUCCESS;
}
FORWARD(cuStreamCreate, cuStreamCreateWithPriority, (stream, flags, 0), CUstream *stream, unsigned int flags)

CUresult cuStreamDestroy_v2(CUstream stream) {
  ENTER(cuStreamDestroy_v2);
  if (!stream || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD) return CUDA_ERROR_INVALID_HANDLE;
  stub_lock();
  CUresult result = stream->context->destroyed ? CUDA_ERROR_CONTEXT_IS_DESTROYED
                    : stream->destroyed        ? CUDA_ERROR_INVALID_HANDLE
                                               : CUDA_SUCCESS;
  if (!result && stream->capture) stub_capture_invalidate(stream->capture), result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (!result) stream->destroyed = true;
  stub_unlock();
  return result;
}
FORWARD(cuStreamDestroy, cuStreamDestroy_v2, (stream), CUstream stream)

STREAM_CALL(cuStreamGetPriority, (stream, priority), CUstream stream, int *priority) {
  CUresult result = stub_stream(stream, &stream);
  if (!result) *priority = stream->priority;
  return result;
}
STREAM_CALL(cuStreamGetFlags, (stream, flags), CUstream stream, unsigned int *flags) {
  CUresult result = stub_stream(stream, &stream);
  if (!result) *flags = stream->flags;
  return result;
}
STREAM_CALL(cuStreamGetId, (stream, id), CUstream stream, unsigned long long *id) {
  CUresult result = stub_stream(stream, &stream);
  if (!result) *id = stream->id;
  return result;
}
STREAM_CALL(cuStreamGetDevice, (stream, device), CUstream stream, CUdevice *device) {
  CUresult result = stub_stream(stream, &stream);
  if (!result) *device = stream->context->device;
  return result;
}
STREAM_CALL(cuStreamGetCtx, (stream, context), CUstream stream, CUcontext *context) {
  CUresult result = stub_stream(stream, &stream);
  if (!result) *context = stream->context;
  return result;
}
STREAM_CALL(cuStreamGetCtx_v2, (stream, context, green), CUstream stream, CUcontext *context, CUgreenCtx *green) {
  CUresult result = stub_stream(stream, &stream);
  if (!result) *context = stream->context;
  if (!result && green) *green = NULL;
  return result;
}

/* What waiting for a stream, or asking whether it is done, has in common.  A capture of it is poisoned. */
static CUresult may_wait(CUstream handle, CUstream *stream) {
  CUresult result = stub_stream(handle, stream);
  if (!result) result = stub_unsafe();
  if (result) return result;
  stub_lock();
  if ((*stream)->capture) {
    stub_capture_invalidate((*stream)->capture);
    result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  } else if ((*stream)->is_legacy && stub_capturing((*stream)->context, true, true)) {
    result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  }
  stub_unlock();
  return result;
}

STREAM_CALL(cuStreamSynchronize, (stream), CUstream stream) {
  CUresult result = may_wait(stream, &stream);
  if (result) return result;
  result = stub_stream_drain(stream);
  stub_pools_trim();
  return result;
}

STREAM_CALL(cuStreamQuery, (stream), CUstream stream) {
  CUresult result = may_wait(stream, &stream);
  if (result) return result;
  stub_lock();
  bool busy = stream->done < stream->submitted;
  for (CUstream other = stream->context->streams; other && stream->is_legacy; other = other->next)
    busy |= !(other->flags & CU_STREAM_NON_BLOCKING) && other->done < other->submitted;
  result = busy ? CUDA_ERROR_NOT_READY : stream->context->error;
  stub_unlock();
  return result;
}

/* Host functions run on the stream's thread, where calls of the driver are refused. */
struct host_call { CUhostFn function; CUstreamCallback callback; CUstream stream; void *argument; };
extern __thread bool stub_in_callback;
static CUresult run_host(void *payload) {
  struct host_call *call = payload;
  stub_in_callback = true;
  if (call->function) call->function(call->argument);
  else call->callback(call->stream, CUDA_SUCCESS, call->argument);
  stub_in_callback = false;
  return CUDA_SUCCESS;
}

STREAM_CALL(cuLaunchHostFunc, (stream, function, argument), CUstream stream, CUhostFn function, void *argument) {
  if (!function) return CUDA_ERROR_INVALID_VALUE;
  struct host_call call = {.function = function, .argument = argument};
  return stub_submit(stream, stub_op(CU_GRAPH_NODE_TYPE_HOST, run_host, &call, sizeof call));
}

STREAM_CALL(cuStreamAddCallback, (stream, callback, argument, flags), CUstream stream, CUstreamCallback callback,
            void *argument, unsigned int flags) {
  CUstream real;
  CUresult result = stub_stream(stream, &real);
  if (result) return result;
  if (!callback || flags) return CUDA_ERROR_INVALID_VALUE;
  if (real->capture) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  struct host_call call = {.callback = callback, .stream = stream, .argument = argument};
  return stub_submit(stream, stub_op(CU_GRAPH_NODE_TYPE_HOST, run_host, &call, sizeof call));
}

CUresult cuGraphAddHostNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                            const CUDA_HOST_NODE_PARAMS *params) {
  ENTER(cuGraphAddHostNode);
  struct host_call call = {.function = params->fn, .argument = params->userData};
  struct stub_op *op = stub_op(CU_GRAPH_NODE_TYPE_HOST, run_host, &call, sizeof call);
  *node = stub_graph_add(graph, op->type, op, dependencies, count);
  return CUDA_SUCCESS;
}

/* Attributes are accepted and forgotten, as nothing here depends on them. */
STREAM_CALL(cuStreamCopyAttributes, (stream, from), CUstream stream, CUstream from) {
  (void)from;
  return stub_stream(stream, &stream);
}
STREAM_CALL(cuStreamGetAttribute, (stream, attribute, value), CUstream stream, CUstreamAttrID attribute,
            CUstreamAttrValue *value) {
  (void)attribute;
  memset(value, 0, sizeof *value);
  return stub_stream(stream, &stream);
}
STREAM_CALL(cuStreamSetAttribute, (stream, attribute, value), CUstream stream, CUstreamAttrID attribute,
            const CUstreamAttrValue *value) {
  (void)attribute, (void)value;
  return stub_stream(stream, &stream);
}
STREAM_CALL(cuStreamAttachMemAsync, (stream, address, length, flags), CUstream stream, CUdeviceptr address, size_t length,
            unsigned int flags) {
  (void)length, (void)flags;
  if (!stub_reaches(address, 1, false)) return CUDA_ERROR_INVALID_VALUE;
  return stub_submit(stream, stub_op(CU_GRAPH_NODE_TYPE_EMPTY, NULL, NULL, 0));
}
