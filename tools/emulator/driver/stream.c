/* Streams: a thread for each, which runs the stream's work in order.  What takes no time is done by who submits it or waits
 * for it, so that programs whose kernels compute nothing do not wait for a thread to wake up.
 *
 * The legacy default stream waits for everything submitted before to the other streams of its context, and they wait for
 * what was submitted to it before, unless they were created non-blocking. */
#include "stub.h"
#include <signal.h>

enum { SHORTEST_PAUSE_NS = 25000, LONGEST_PAUSE_NS = 1000000 };

static uint64_t next_id = 1;

struct stub_op *stub_op(CUgraphNodeType type, CUresult (*run)(void *), const void *payload, size_t bytes) {
  struct stub_op *op = calloc(1, sizeof *op + bytes);
  op->type = type;
  op->run = run;
  op->bytes = bytes;
  if (bytes) memcpy(op->payload, payload, bytes);
  return op;
}

struct stub_op *stub_op_copy(const struct stub_op *op) {
  struct stub_op *copy = stub_op(op->type, op->run, op->payload, op->bytes);
  copy->arrived = op->arrived;
  return copy;
}

void stub_op_free(struct stub_op *op) {
  if (!op) return;
  free(op->owned);
  free(op);
}

void stub_mark_drop(struct stub_mark *mark) {
  if (mark && --mark->refs == 0) free(mark);
}

static bool in_turn(const struct stub_work *work) {
  for (unsigned i = 0; i < work->waits; i++) {
    const struct stub_wait *wait = &work->wait[i];
    if (wait->stream ? wait->stream->done < wait->seq : !wait->mark->done) return false;
  }
  return true;
}

static bool takes_time(CUstream stream, const struct stub_work *work) {
  return work->op && work->op->run && !work->op->arrived && !stream->context->error;
}

/* Of work that is no wait, or in a broken context: always. */
static bool arrived(CUstream stream, const struct stub_work *work, CUresult *result) {
  *result = CUDA_SUCCESS;
  return !work->op || !work->op->arrived || stream->context->error || work->op->arrived(work->op->payload, result);
}

/* stub.lock held, but not meanwhile */
static CUresult run(CUstream stream, struct stub_work *work) {
  stream->running = true;
  stub_unlock();
  CUresult result = work->op->run(work->op->payload);
  stub_lock();
  stream->running = false;
  return result;
}

static void finish(CUstream stream, struct stub_work *work, CUresult result) {
  stream->head = work->next;
  if (!stream->head) stream->tail = &stream->head;
  stream->done = work->seq;
  if (result && !stream->context->error) __atomic_store_n(&stream->context->error, result, __ATOMIC_RELAXED);
  if (work->mark) work->mark->done = true, work->mark->done_ns = stub_now_ns(), stub_mark_drop(work->mark);
  for (unsigned i = 0; i < work->waits; i++) stub_mark_drop(work->wait[i].mark);
  stub_op_free(work->op);
  free(work);
  pthread_cond_broadcast(&stub.progress);
}

/* stub.lock held.  Does what takes no time, as far as that is next: whether anything was done. */
static bool pass(CUstream stream) {
  bool any = false;
  CUresult result;
  for (struct stub_work *work; (work = stream->head) && !stream->running; any = true) {
    if (takes_time(stream, work) || !in_turn(work) || !arrived(stream, work, &result)) break;
    finish(stream, work, result);
  }
  return any;
}

/* Looks after a millisecond at most: the writer of a word may be any process, and knows nothing of us. */
static void look_again(CUstream stream, uint64_t *pause_ns) {
  struct timespec until;
  *pause_ns = 2 * *pause_ns < LONGEST_PAUSE_NS ? 2 * *pause_ns : LONGEST_PAUSE_NS;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_nsec += (long)*pause_ns;
  if (until.tv_nsec >= 1000000000) until.tv_nsec -= 1000000000, until.tv_sec++;
  pthread_cond_timedwait(&stream->wake, &stub.lock, &until);
}

static void *work_off(void *argument) {
  CUstream stream = argument;
  uint64_t pause_ns = SHORTEST_PAUSE_NS;
  CUresult result;
  stub_lock();
  for (;;) {
    struct stub_work *work = stream->head;
    if (!work && stream->context->destroyed) break;
    if (!work) pthread_cond_wait(&stream->wake, &stub.lock);
    else if (stream->running || !in_turn(work)) pthread_cond_wait(&stub.progress, &stub.lock);
    else if (takes_time(stream, work)) finish(stream, work, run(stream, work));
    else if (!arrived(stream, work, &result)) look_again(stream, &pause_ns);
    else finish(stream, work, result), pause_ns = SHORTEST_PAUSE_NS;
  }
  stub_unlock();
  return NULL;
}

static void start(CUstream stream) {
  sigset_t all, before;
  pthread_t thread;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before); /* the program's signals are the program's */
  stream->started = pthread_create(&thread, NULL, work_off, stream) == 0;
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (!stream->started) abort();
  pthread_detach(thread);
}

static bool orders(CUstream later, CUstream earlier) {
  if (later == earlier || earlier->done == earlier->submitted) return false;
  return (later->is_legacy && !(earlier->flags & CU_STREAM_NON_BLOCKING)) ||
         (earlier->is_legacy && !(later->flags & CU_STREAM_NON_BLOCKING));
}

void stub_enqueue(CUstream stream, struct stub_op *op, struct stub_mark *wait, struct stub_mark *mark) {
  unsigned waits = wait != NULL;
  for (CUstream other = stream->context->streams; other; other = other->next) waits += orders(stream, other);
  struct stub_work *work = calloc(1, sizeof *work + waits * sizeof *work->wait);
  *work = (struct stub_work){.seq = ++stream->submitted, .op = op, .mark = mark};
  if (wait) wait->refs++, work->wait[work->waits++].mark = wait;
  if (mark) mark->refs++;
  for (CUstream other = stream->context->streams; other; other = other->next)
    if (orders(stream, other)) work->wait[work->waits++] = (struct stub_wait){.stream = other, .seq = other->submitted};
  *stream->tail = work;
  stream->tail = &work->next;
  pass(stream);
  if (!stream->head) return;
  if (!stream->started) start(stream);
  pthread_cond_signal(&stream->wake);
}

/* stub.lock held.  Streams stay in their context's list; a destroyed one is used again. */
CUstream stub_stream_new(CUcontext context, unsigned flags, int priority) {
  CUstream stream = context->streams;
  while (stream && !(stream->destroyed && stream->done == stream->submitted)) stream = stream->next;
  if (!stream) {
    stream = calloc(1, sizeof *stream);
    *stream = (struct CUstream_st){.context = context, .next = context->streams};
    stream->tail = &stream->head;
    pthread_cond_init(&stream->wake, NULL);
    context->streams = stream;
  }
  stream->destroyed = false;
  stream->flags = flags;
  stream->priority = priority;
  stream->id = next_id++;
  return stream;
}

/* stub.lock held, but not meanwhile.  A launch queue has so many entries; who submits more waits inside of the call. */
void stub_wait_for_room(CUstream stream) {
  enum { QUEUE = 1024 };
  while (!stream->capture && stream->submitted - stream->done >= QUEUE)
    if (!pass(stream)) pthread_cond_wait(&stub.progress, &stub.lock);
}

static pthread_key_t own_key;
static pthread_once_t own_once = PTHREAD_ONCE_INIT;
static __thread struct { CUcontext context; CUstream stream; } own[8];
static __thread unsigned own_count;

static void drop_own(void *unused) {
  (void)unused;
  stub_lock();
  for (unsigned i = 0; i < own_count; i++) own[i].stream->destroyed = true;
  stub_unlock();
}
static void make_key(void) { pthread_key_create(&own_key, drop_own); }

/* stub.lock held */
static CUstream per_thread(CUcontext context) {
  for (unsigned i = 0; i < own_count; i++)
    if (own[i].context == context) return own[i].stream;
  if (own_count == 8) return context->legacy;
  pthread_once(&own_once, make_key);
  pthread_setspecific(own_key, own);
  own[own_count].context = context;
  own[own_count].stream = stub_stream_new(context, CU_STREAM_DEFAULT, 0);
  return own[own_count++].stream;
}

CUresult stub_stream(CUstream handle, CUstream *stream) {
  CUcontext context;
  CUresult result = stub_current(&context);
  if (handle != CU_STREAM_LEGACY && handle != CU_STREAM_PER_THREAD) {
    *stream = handle;
    if (handle->context->destroyed) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    return handle->destroyed ? CUDA_ERROR_INVALID_HANDLE : __atomic_load_n(&handle->context->error, __ATOMIC_RELAXED);
  }
  if (result) return result;
  stub_lock();
  *stream = handle == CU_STREAM_LEGACY ? context->legacy : per_thread(context);
  stub_unlock();
  return CUDA_SUCCESS;
}

/* stub.lock held; the op is gone afterwards, whatever the result */
static CUresult submit(CUstream stream, struct stub_op *op) {
  stub_wait_for_room(stream);
  if (stream->capture) return stub_capture_add(stream, op);
  if (stream->is_legacy && stub_capturing(stream->context, true, true)) {
    stub_op_free(op);
    return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  }
  stub_enqueue(stream, op, NULL, NULL);
  return CUDA_SUCCESS;
}

CUresult stub_submit(CUstream handle, struct stub_op *op) {
  CUstream stream;
  CUresult result = stub_stream(handle, &stream);
  if (result) return stub_op_free(op), result;
  stub_lock();
  result = submit(stream, op);
  stub_unlock();
  return result;
}

CUresult stub_submit_wait(CUstream handle, struct stub_op *op) {
  CUstream stream;
  CUresult result = stub_stream(handle, &stream);
  if (!result) result = stub_unsafe();
  if (result) return stub_op_free(op), result;
  stub_lock();
  bool captured = stream->capture != NULL;
  if (captured) stub_capture_invalidate(stream->capture), stub_op_free(op), result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  else result = submit(stream, op);
  stub_unlock();
  return result ? result : stub_stream_drain(stream);
}

/* Waits for what has been submitted so far; for the default stream that includes the streams it waits for. */
CUresult stub_stream_drain(CUstream stream) {
  stub_lock();
  if (stream->is_legacy)
    for (CUstream other = stream->context->streams; other; other = other->next)
      if (orders(stream, other)) {
        stub_enqueue(stream, NULL, NULL, NULL);
        break;
      }
  uint64_t target = stream->submitted;
  while (stream->done < target)
    if (!pass(stream)) pthread_cond_wait(&stub.progress, &stub.lock);
  CUresult result = stream->context->error;
  stub_unlock();
  return result;
}
