/* Has everything ended that was submitted?  Asked, never waited for: work that waits for the job's own next call must not
 * hold us for good. */
#include "cuda/turn/tracked_objects.h"

static bool enter(CUcontext context) { return cp_real.cuCtxPushCurrent_v2(context) == CUDA_SUCCESS; }

static void leave(void) {
  CUcontext context;
  cp_real.cuCtxPopCurrent_v2(&context);
}

bool cp_drain_stopped;

/* The process is about to end, and the driver with it: the helper thread must not be found in one of its calls.
 * The turn stays until the process is gone. */
void cp_drain_stop(void) {
  cp_acquire(&cp_books.lock);
  cp_drain_stopped = true;
  cp_release(&cp_books.lock);
}

static bool done(CUresult r) { return r != CUDA_ERROR_NOT_READY; } /* an error: nothing will come of it any more */

static bool tails_done(CUcontext context) {
  bool ready = true;
  for (uint32_t i = cp_books.tail_count; i--;) {
    if (cp_books.tails[i].context != context) continue;
    if (!done(cp_real.cuEventQuery(cp_books.tails[i].event))) {
      ready = false;
      continue;
    }
    cp_real.cuEventDestroy_v2(cp_books.tails[i].event);
    cp_books.tails[i] = cp_books.tails[--cp_books.tail_count];
  }
  return ready;
}

/* In its context. */
static bool keep_tail(const struct cp_stream *s) {
  CUevent event;
  if (cp_books.tail_count == MOST_TAILS) tails_done(s->context);
  if (cp_books.tail_count == MOST_TAILS) return false;
  if (cp_real.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) return false;
  if (cp_real.cuEventRecord(event, s->stream) != CUDA_SUCCESS) {
    cp_real.cuEventDestroy_v2(event);
    return false;
  }
  cp_books.tails[cp_books.tail_count++] = (struct cp_tail){event, s->context};
  return true;
}

bool cp_keep_tail(const struct cp_stream *s) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  if (!enter(s->context)) return true;
  bool free = cp_real.cuStreamIsCapturing(s->stream, &status) == CUDA_SUCCESS && status == CU_STREAM_CAPTURE_STATUS_NONE;
  bool kept = !free || done(cp_real.cuStreamQuery(s->stream)) || keep_tail(s);
  leave();
  return kept;
}

/* A primary context may have gone without our having seen it. */
bool cp_context_usable(const struct cp_context *c) {
  unsigned int flags;
  int active = 1;
  if (c->device == NO_DEVICE) return true;
  return cp_real.cuDevicePrimaryCtxGetState(c->device, &flags, &active) == CUDA_SUCCESS && active;
}

/* Whoever is in a call has noted its stream before, and nobody is. */
static void find_busy_streams(void) {
  uint64_t worked[CP_STREAM_BITS / 64];
  for (uint32_t i = 0; i < CP_STREAM_BITS / 64; i++)
    worked[i] = __atomic_exchange_n(&cp_worked[i], 0, __ATOMIC_SEQ_CST);
  for (uint32_t i = 0; i < cp_books.stream_count; i++) {
    struct cp_stream *s = &cp_books.streams[i];
    uint32_t bit = cp_stream_bit(s->stream);
    s->busy |= worked[bit / 64] >> bit % 64 & 1;
  }
}

static bool begun; /* of the helper thread */

void cp_drain_begin(void) { begun = false; }

static void begin(void) {
  find_busy_streams();
  if (!cp_drain_stopped) cp_relax(); /* for good: the thread is ours */
  for (uint32_t i = 0; i < cp_books.context_count; i++) cp_books.contexts[i].recorded = false;
  begun = true;
}

static bool streams_done(const struct cp_context *c) {
  bool ready = done(cp_real.cuStreamQuery(CU_STREAM_LEGACY));
  for (uint32_t i = 0; ready && i < cp_books.stream_count; i++) {
    struct cp_stream *s = &cp_books.streams[i];
    if (s->context != c->context || !s->busy) continue;
    ready = done(cp_real.cuStreamQuery(s->stream));
    s->busy = !ready;
  }
  return ready;
}

/* An error of the program's: nothing will come of its work any more. */
static bool broken(void) {
  CUresult r = cp_real.cuStreamQuery(CU_STREAM_LEGACY);
  return r != CUDA_SUCCESS && r != CUDA_ERROR_NOT_READY;
}

/* The default streams of other threads cannot be named here.  But they are blocking streams: an event in the legacy stream
 * comes after all that is in them.  It would order streams that the job keeps apart, so it is recorded only when all the
 * others are empty. */
static bool own_streams_done(struct cp_context *c) {
  if (!c->recorded) {
    if (!c->event && cp_real.cuEventCreate(&c->event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) return broken();
    if (cp_real.cuEventRecord(c->event, CU_STREAM_LEGACY) != CUDA_SUCCESS) return broken();
    c->recorded = true;
  }
  return done(cp_real.cuEventQuery(c->event));
}

static bool contexts_done(bool (*ask)(struct cp_context *)) {
  bool ready = true;
  for (uint32_t i = 0; ready && i < cp_books.context_count; i++) {
    struct cp_context *c = &cp_books.contexts[i];
    if (!cp_context_usable(c) || !enter(c->context)) continue;
    ready = ask(c);
    leave();
  }
  return ready;
}

static bool named_done(struct cp_context *c) { return streams_done(c) && tails_done(c->context); }

/* The event of a boundary may wait under the lock for room in a launch queue, thus for the job's own next call. */
bool cp_drained(void) {
  if (!cp_try(&cp_books.lock)) return false;
  if (!begun) begin();
  bool ready = !cp_drain_stopped && !cp_books.goings && contexts_done(named_done) &&
               (!cp_load(&cp_own_streams) || contexts_done(own_streams_done));
  cp_release(&cp_books.lock);
  return ready;
}
