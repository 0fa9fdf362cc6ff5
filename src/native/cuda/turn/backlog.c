/* How much of a job's work may stand on the device before that of a service: while a service is there, a job waits before
 * it submits more than the device does in a given time.
 *
 * What a call takes is not known before.  Every few calls an event is recorded; by the times at which events are seen to
 * have passed follows what a call takes on average, and by that how many calls may be under way.  Of work in several
 * streams only the latest one's of each thread is seen. */
#include "cuda/turn/tracked_objects.h"

#define MARKS 8u
#define FIRST_CALLS 16u /* may be under way while nothing is known */
#define MOST_WAIT_US 1000000u /* what is under way may be waiting for the job's own next call */
#define LOOK_US 50

struct mark {
  CUevent event;
  uint64_t calls; /* that came before */
};

/* Under the books' lock. */
static CUcontext context;
static struct mark marks[MARKS];
static uint32_t first, count; /* those that have not been seen to pass */
static uint64_t calls;
static struct {
  uint64_t calls, at; /* of the latest mark, and when that was seen */
} passed;
static uint64_t pace_ns; /* of a call, 0: not known */

static struct mark *mark_at(uint32_t i) { return &marks[(first + i) % MARKS]; }

static void forget(void) {
  count = 0;
  passed.calls = calls;
  passed.at = cp_now_us();
}

static bool make_events(CUcontext current) {
  if (context == current) return true;
  context = NULL;
  forget();
  for (uint32_t i = 0; i < MARKS; i++)
    if (cp_real.cuEventCreate(&marks[i].event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) return false;
  context = current;
  return true;
}

/* The latest marks have been seen to pass. */
static void learn(uint64_t calls_so_far, uint64_t now) {
  uint64_t done = calls_so_far - passed.calls;
  uint64_t pace = done ? (now - passed.at) * 1000 / done : pace_ns;
  pace_ns = pace_ns ? (3 * pace_ns + pace) / 4 : pace;
  passed.calls = calls_so_far;
  passed.at = now;
}

static void look(void) {
  uint64_t last = 0;
  while (count && cp_real.cuEventQuery(mark_at(0)->event) != CUDA_ERROR_NOT_READY) {
    last = mark_at(0)->calls;
    first = (first + 1) % MARKS;
    count--;
  }
  if (last) learn(last, cp_now_us());
}

static uint64_t most_calls(void) {
  uint64_t bound = cp_load(&cp.seat->ahead_us) * 1000ull, n = pace_ns ? bound / pace_ns : FIRST_CALLS;
  return n ? n : 1;
}

static void mark_now(uint64_t most) {
  const struct cp_thread *t = cp_thread;
  uint64_t since = calls - (count ? mark_at(count - 1)->calls : passed.calls);
  if (count == MARKS || since * (MARKS / 2) < most || cp_capturing() || !cp_knows_stream(t->stream)) return;
  struct mark *m = mark_at(count);
  if (cp_real.cuEventRecord(m->event, t->stream ? t->stream : CU_STREAM_LEGACY) != CUDA_SUCCESS) return;
  if (!count) passed.at = cp_now_us(); /* nothing is known to be under way before */
  m->calls = calls;
  count++;
}

/* Books' lock held.  May the call that has been counted be submitted? */
static bool may_go_on(void) {
  if (!count || calls - passed.calls <= most_calls() / 2) return true;
  look();
  return !count || calls - passed.calls <= most_calls();
}

static bool begin(void) {
  CUcontext current = NULL;
  if (cp_books.goings || cp_real.cuCtxGetCurrent(&current) != CUDA_SUCCESS || !current || !make_events(current)) return true;
  mark_now(most_calls());
  calls++;
  return may_go_on();
}

static bool goes_on(void) {
  cp_acquire(&cp_books.lock);
  bool yes = cp_books.goings || !context || may_go_on();
  cp_release(&cp_books.lock);
  return yes;
}

void cp_backlog_wait(void) {
  uint64_t now = cp_now_us();
  CUstreamCaptureMode mode = cp_relax();
  cp_acquire(&cp_books.lock);
  bool yes = begin();
  cp_release(&cp_books.lock);
  while (!yes && !(cp_load(&cp_shut) & CP_SHUT) && cp_now_us() - now < MOST_WAIT_US) {
    cp_add(&cp_syscalls, 1);
    syscall(SYS_nanosleep, &(struct timespec){.tv_nsec = LOOK_US * 1000}, NULL);
    yes = goes_on();
  }
  cp_unrelax(mode);
}

void cp_backlog_bound(void) { cp_shut_bit(CP_BOUND, cp_load(&cp.seat->ahead_us)); }

void cp_backlog_forget(void) {
  cp_acquire(&cp_books.lock);
  forget();
  cp_release(&cp_books.lock);
}

void cp_backlog_drop(CUcontext gone) {
  if (context != gone) return;
  context = NULL;
  forget();
}
