/* How far a job may run ahead of its device: while another job waits for the turn, a job that has ended an iteration
 * submits no more before its device has ended the one before.  Otherwise there might be seconds of work to drain.
 *
 * The boundary itself does not wait, because the interpreter's lock is held there; the next call that submits does. */
#include "cuda/turn/tracked_objects.h"

#define MOST_WAIT_US 1000000u /* what is under way may be waiting for the job's own next call */
#define LOOK_US 50

/* Under the books' lock. */
static CUcontext context;
static CUevent events[2];
static uint32_t latest;
static bool recorded;
static CUevent awaited;

static bool make_events(CUcontext current) {
  if (context == current) return true;
  recorded = false;
  context = NULL;
  for (int i = 0; i < 2; i++)
    if (cp_real.cuEventCreate(&events[i], CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) return false;
  context = current;
  return true;
}

/* Behind the latest work of this thread: autograd's thread uses the streams of the thread that called it. */
static bool record(void) {
  struct cp_thread *t = cp_thread;
  if (cp_capturing() || !cp_knows_stream(t->stream)) return false;
  CUstream stream = t->stream ? t->stream : CU_STREAM_LEGACY;
  return cp_real.cuEventRecord(events[1 - latest], stream) == CUDA_SUCCESS;
}

void cp_ahead_boundary(void) {
  CUcontext current = NULL;
  if (!cp_thread || cp_load(&cp_shut) & CP_AHEAD) return;
  if (cp_real.cuCtxGetCurrent(&current) != CUDA_SUCCESS || !current) return;
  CUstreamCaptureMode mode = cp_relax();
  cp_acquire(&cp_books.lock);
  if (make_events(current) && record()) {
    if (recorded) {
      awaited = events[latest];
      cp_shut_bit(CP_AHEAD, true);
    }
    recorded = true;
    latest = 1 - latest;
  }
  cp_release(&cp_books.lock);
  cp_unrelax(mode);
}

/* An event goes with its context. */
static bool ended(void) {
  cp_acquire(&cp_books.lock);
  bool yes = !cp_books.goings && (!context || cp_real.cuEventQuery(awaited) != CUDA_ERROR_NOT_READY);
  cp_release(&cp_books.lock);
  return yes;
}

void cp_ahead_wait(void) {
  uint64_t begin = cp_now_us();
  CUstreamCaptureMode mode = cp_relax();
  while ((cp_load(&cp_shut) & (CP_AHEAD | CP_SHUT)) == CP_AHEAD) {
    if (ended() || cp_now_us() - begin > MOST_WAIT_US) {
      cp_shut_bit(CP_AHEAD, false);
      break;
    }
    cp_add(&cp_syscalls, 1);
    syscall(SYS_nanosleep, &(struct timespec){.tv_nsec = LOOK_US * 1000}, NULL);
  }
  cp_unrelax(mode);
}

void cp_ahead_forget(void) {
  cp_acquire(&cp_books.lock);
  recorded = false;
  cp_shut_bit(CP_AHEAD, false);
  cp_release(&cp_books.lock);
}

void cp_ahead_drop(CUcontext gone) {
  if (context != gone) return;
  context = NULL;
  recorded = false;
  cp_shut_bit(CP_AHEAD, false);
}
