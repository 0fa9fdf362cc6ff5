/* Contexts, streams and captures: what has to be drained before a turn ends, and when that is forbidden. */
#include "cuda/turn/tracked_objects.h"
#include "cuda/memory/grant.h"

#include <stdlib.h>

#define MOST_WAIT_US 1000000u /* for the end of a stream to be noted */

struct cp_books cp_books;
static CUcontext latest; /* context that is known to be in the list */

bool cp_capturing(void) { return cp_load(&cp_books.capture_count) != 0; }

CUstreamCaptureMode cp_relax(void) {
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  cp_real.cuThreadExchangeStreamCaptureMode(&mode);
  return mode;
}
void cp_unrelax(CUstreamCaptureMode mode) { cp_real.cuThreadExchangeStreamCaptureMode(&mode); }

/* ---- contexts -------------------------------------------------------------------------------------------------------- */

static struct cp_context *find_context(CUcontext context) {
  for (uint32_t i = 0; i < cp_books.context_count; i++)
    if (cp_books.contexts[i].context == context) return &cp_books.contexts[i];
  return NULL;
}

static void add_context(CUcontext context, CUdevice device) {
  if (!context || (device == NO_DEVICE && cp_load(&latest) == context)) return;
  cp_acquire(&cp_books.lock);
  struct cp_context *c = find_context(context);
  if (!c && cp_books.context_count < MOST_CONTEXTS) {
    c = &cp_books.contexts[cp_books.context_count++];
    *c = (struct cp_context){.context = context, .device = NO_DEVICE};
  }
  if (c && device != NO_DEVICE) c->device = device;
  if (c) cp_store(&latest, context);
  cp_release(&cp_books.lock);
  cp_traits(c ? CP_TRAIT_DEVICE : CP_TRAIT_DEVICE | CP_TRAIT_UNGATED);
}

/* Books' lock held. */
static void drop_context(CUcontext context) {
  cp_ahead_drop(context);
  cp_backlog_drop(context);
  cp_residue_drop(context);
  uint32_t n = 0;
  for (uint32_t i = 0; i < cp_books.context_count; i++)
    if (cp_books.contexts[i].context != context) cp_books.contexts[n++] = cp_books.contexts[i];
  cp_books.context_count = n;
  n = 0;
  for (uint32_t i = 0; i < cp_books.stream_count; i++)
    if (cp_books.streams[i].context != context) cp_books.streams[n++] = cp_books.streams[i];
  cp_books.stream_count = n;
  n = 0;
  for (uint32_t i = 0; i < cp_books.tail_count; i++)
    if (cp_books.tails[i].context != context) cp_books.tails[n++] = cp_books.tails[i];
  cp_books.tail_count = n;
  cp_store(&latest, NULL);
}

/* While it is being released it may be gone at any moment: the helper leaves it alone. */
static void going(CUcontext gone) {
  cp_acquire(&cp_books.lock);
  cp_books.goings++;
  if (gone) drop_context(gone);
  cp_release(&cp_books.lock);
}

static void went(CUdevice gone) {
  cp_acquire(&cp_books.lock);
  cp_books.goings--;
  for (uint32_t i = 0; gone != NO_DEVICE && i < cp_books.context_count; i++) {
    if (cp_books.contexts[i].device != gone) continue;
    drop_context(cp_books.contexts[i].context);
    break;
  }
  cp_release(&cp_books.lock);
}

static CUresult release_primary(CUresult (*release)(CUdevice), CUdevice device) {
  going(NULL);
  CUresult r = release(device);
  unsigned int flags;
  int active = 0;
  if (cp_real.cuDevicePrimaryCtxGetState(device, &flags, &active) != CUDA_SUCCESS) active = 0;
  went(active ? NO_DEVICE : device);
  return r;
}

/* Memory that was allocated in other contexts stays, and it is not known which that is. */
static CUresult reset_primary(CUresult (*reset)(CUdevice), CUdevice device) {
  CUresult r = release_primary(reset, device);
  cp_acquire(&cp_books.lock);
  bool last = r == CUDA_SUCCESS && !cp_books.context_count;
  cp_release(&cp_books.lock);
  if (last) cp_segments_lost();
  return r;
}

static CUresult made(CUresult r, const CUcontext *context, CUdevice device) {
  if (r == CUDA_SUCCESS && context) add_context(*context, device);
  return r;
}

static CUresult current(CUresult r, CUcontext context) { return made(r, &context, NO_DEVICE); }

uint32_t cp_driver_used;
/* What is registered last is called first: before anything that the driver has registered. */
static void stop(void) {
  cp_drain_stop();
  cp_extents_stop();
}

CP_GATE(cuInit, unsigned int flags) {
  cp_driver_start();
  cp_see_own_devices();
  bool first = !cp_load(&cp_driver_used);
  cp_store(&cp_driver_used, 1); /* before it works: no other thread may find that it works without us */
  CUresult r = cp_real.cuInit(flags);
  if (first) atexit(stop);
  if (r == CUDA_SUCCESS) cp_driver_begins();
  return r;
}

#define CONTEXT_CALL(symbol, result, ...) \
  CP_GATE(symbol, __VA_ARGS__) { \
    cp_driver_start(); \
    return result; \
  }
CONTEXT_CALL(cuDevicePrimaryCtxRetain, made(cp_real.cuDevicePrimaryCtxRetain(context, device), context, device),
             CUcontext *context, CUdevice device)
CONTEXT_CALL(cuDevicePrimaryCtxRelease, release_primary(cp_real.cuDevicePrimaryCtxRelease, device), CUdevice device)
CONTEXT_CALL(cuDevicePrimaryCtxRelease_v2, release_primary(cp_real.cuDevicePrimaryCtxRelease_v2, device), CUdevice device)
CONTEXT_CALL(cuDevicePrimaryCtxReset, reset_primary(cp_real.cuDevicePrimaryCtxReset, device), CUdevice device)
CONTEXT_CALL(cuDevicePrimaryCtxReset_v2, reset_primary(cp_real.cuDevicePrimaryCtxReset_v2, device), CUdevice device)
CONTEXT_CALL(cuCtxCreate_v2, made(cp_real.cuCtxCreate_v2(context, flags, device), context, NO_DEVICE),
             CUcontext *context, unsigned int flags, CUdevice device)
CONTEXT_CALL(cuCtxCreate_v3, made(cp_real.cuCtxCreate_v3(context, params, count, flags, device), context, NO_DEVICE),
             CUcontext *context, CUexecAffinityParam *params, int count, unsigned int flags, CUdevice device)
CONTEXT_CALL(cuCtxCreate_v4, made(cp_real.cuCtxCreate_v4(context, params, flags, device), context, NO_DEVICE),
             CUcontext *context, CUctxCreateParams *params, unsigned int flags, CUdevice device)
CONTEXT_CALL(cuCtxPushCurrent, current(cp_real.cuCtxPushCurrent(context), context), CUcontext context)
CONTEXT_CALL(cuCtxPushCurrent_v2, current(cp_real.cuCtxPushCurrent_v2(context), context), CUcontext context)
CONTEXT_CALL(cuCtxSetCurrent, current(cp_real.cuCtxSetCurrent(context), context), CUcontext context)

static CUresult destroy(CUresult (*real)(CUcontext), CUcontext context) {
  going(context);
  CUresult r = real(context);
  went(NO_DEVICE);
  if (r != CUDA_SUCCESS) add_context(context, NO_DEVICE);
  return r;
}
CONTEXT_CALL(cuCtxDestroy, destroy(cp_real.cuCtxDestroy, context), CUcontext context)
CONTEXT_CALL(cuCtxDestroy_v2, destroy(cp_real.cuCtxDestroy_v2, context), CUcontext context)

/* ---- streams --------------------------------------------------------------------------------------------------------- */

bool cp_knows_stream(CUstream stream) {
  if (stream == NULL || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD) return true;
  for (uint32_t i = 0; i < cp_books.stream_count; i++)
    if (cp_books.streams[i].stream == stream) return true;
  return false;
}

static CUresult began_stream(CUresult r, const CUstream *stream) {
  CUcontext context = NULL;
  if (r != CUDA_SUCCESS || !stream || cp_real.cuCtxGetCurrent(&context) != CUDA_SUCCESS) return r;
  current(r, context);
  cp_acquire(&cp_books.lock);
  bool room = cp_books.stream_count < MOST_STREAMS;
  if (room) cp_books.streams[cp_books.stream_count++] = (struct cp_stream){.stream = *stream, .context = context};
  cp_release(&cp_books.lock);
  if (!room) cp_traits(CP_TRAIT_UNGATED);
  return r;
}

static void forget_capture(CUstream stream, struct cp_thread *thread) {
  cp_acquire(&cp_books.lock);
  for (uint32_t i = 0; i < cp_books.capture_count; i++) {
    if (cp_books.captures[i].stream != stream || cp_books.captures[i].thread != thread) continue;
    cp_books.captures[i] = cp_books.captures[cp_books.capture_count - 1];
    cp_store(&cp_books.capture_count, cp_books.capture_count - 1);
    break;
  }
  cp_release(&cp_books.lock);
  bool awaited = cp_active() && (cp_load(&cp.seat->yield) || cp_load(&cp.seat->watch));
  if (awaited) cp_notify(cp.seat);
}

/* False: its end cannot be noted now. */
static bool drop_stream(CUstream stream, bool insist) {
  bool kept = true;
  cp_acquire(&cp_books.lock);
  for (uint32_t i = 0; i < cp_books.stream_count; i++) {
    if (cp_books.streams[i].stream != stream) continue;
    kept = cp_keep_tail(&cp_books.streams[i]);
    if (kept || insist) cp_books.streams[i] = cp_books.streams[--cp_books.stream_count];
    break;
  }
  cp_release(&cp_books.lock);
  return kept;
}

static void forget_stream(CUstream stream) {
  CUstreamCaptureMode mode = cp_relax();
  bool kept = drop_stream(stream, false);
  for (uint64_t begin = cp_now_us(); !kept && cp_now_us() - begin < MOST_WAIT_US;) {
    cp_add(&cp_syscalls, 1);
    syscall(SYS_nanosleep, &(struct timespec){.tv_nsec = 1000000}, NULL);
    kept = drop_stream(stream, false);
  }
  if (!kept && !drop_stream(stream, true)) cp_traits(CP_TRAIT_UNGATED);
  cp_unrelax(mode);
  forget_capture(stream, NULL);
}

static CUresult end_stream(CUresult (*real)(CUstream), CUstream stream) {
  forget_stream(stream);
  return real(stream);
}

CONTEXT_CALL(cuStreamCreate, began_stream(cp_real.cuStreamCreate(stream, flags), stream), CUstream *stream,
             unsigned int flags)
CONTEXT_CALL(cuStreamCreateWithPriority, began_stream(cp_real.cuStreamCreateWithPriority(stream, flags, priority), stream),
             CUstream *stream, unsigned int flags, int priority)
CONTEXT_CALL(cuStreamDestroy, end_stream(cp_real.cuStreamDestroy, stream), CUstream stream)
CONTEXT_CALL(cuStreamDestroy_v2, end_stream(cp_real.cuStreamDestroy_v2, stream), CUstream stream)

/* It may wait for another process.  Noted afterwards, because no turn is needed for it: the next end of one asks. */
static CUresult waits(CUresult r, CUstream stream) {
  cp_work_on(stream);
  return r;
}
CONTEXT_CALL(cuStreamWaitEvent, waits(cp_real.cuStreamWaitEvent(stream, event, flags), stream), CUstream stream,
             CUevent event, unsigned int flags)
CONTEXT_CALL(cuStreamWaitEvent_ptsz, waits(cp_real.cuStreamWaitEvent_ptsz(stream, event, flags), stream),
             CUstream stream, CUevent event, unsigned int flags)

/* ---- captures -------------------------------------------------------------------------------------------------------- */

static struct cp_capture named(CUstream stream, bool own) {
  bool per_thread = stream == CU_STREAM_PER_THREAD || (own && !stream);
  return per_thread ? (struct cp_capture){CU_STREAM_PER_THREAD, cp_thread} : (struct cp_capture){stream, NULL};
}

/* Books' lock held. */
static void began_capture(CUstream stream, bool own) {
  bool room = cp_books.capture_count < MOST_CAPTURES;
  if (room) cp_books.captures[cp_books.capture_count] = named(stream, own);
  if (room) cp_store(&cp_books.capture_count, cp_books.capture_count + 1);
  if (!room) cp_traits(CP_TRAIT_UNGATED);
}

/* Ended, or ended by an error; a wrong thread's attempt changes nothing. */
static void ended_capture(CUresult r, CUstream stream, bool own) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  __typeof__(cuStreamIsCapturing) *ask = own ? cp_real.cuStreamIsCapturing_ptsz : cp_real.cuStreamIsCapturing;
  if (r != CUDA_SUCCESS && ask(stream, &status) == CUDA_SUCCESS && status != CU_STREAM_CAPTURE_STATUS_NONE) return;
  struct cp_capture c = named(stream, own);
  forget_capture(c.stream, c.thread);
}

/* The lock: the event of a boundary (run_ahead.c) is recorded before a capture begins or not at all. */
#define CAPTURE(symbol, own, arguments, ...) \
  CP_GATE(symbol, __VA_ARGS__) { \
    uint64_t leave = 0; \
    struct cp_thread *t = cp_enter(&leave); \
    cp_acquire(&cp_books.lock); \
    CUresult r = cp_real.symbol arguments; \
    if (r == CUDA_SUCCESS) began_capture(stream, own); \
    cp_release(&cp_books.lock); \
    cp_leave(t, leave); \
    return r; \
  }
#define CAPTURES(symbol, arguments, ...) \
  CAPTURE(symbol, false, arguments, __VA_ARGS__) \
  CAPTURE(symbol##_ptsz, true, arguments, __VA_ARGS__)
CAPTURES(cuStreamBeginCapture, (stream), CUstream stream)
CAPTURES(cuStreamBeginCapture_v2, (stream, mode), CUstream stream, CUstreamCaptureMode mode)
CAPTURES(cuStreamBeginCaptureToGraph, (stream, graph, dependencies, edges, count, mode), CUstream stream, CUgraph graph,
         const CUgraphNode *dependencies, const CUgraphEdgeData *edges, size_t count, CUstreamCaptureMode mode)
CAPTURES(cuStreamBeginRecaptureToGraph, (stream, mode, graph, changed, data), CUstream stream, CUstreamCaptureMode mode,
         CUgraph graph, CUgraphRecaptureCallback changed, void *data)

static CUresult end_capture(CUresult r, CUstream stream, bool own) {
  ended_capture(r, stream, own);
  return r;
}
CONTEXT_CALL(cuStreamEndCapture, end_capture(cp_real.cuStreamEndCapture(stream, graph), stream, false), CUstream stream,
             CUgraph *graph)
CONTEXT_CALL(cuStreamEndCapture_ptsz, end_capture(cp_real.cuStreamEndCapture_ptsz(stream, graph), stream, true),
             CUstream stream, CUgraph *graph)
