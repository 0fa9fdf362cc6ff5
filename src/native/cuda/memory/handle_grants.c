/* Memory that the program makes itself is persistent memory of the job's grant: asked for before it is made, given back
 * when it is released.
 *
 * The daemon makes no device buffer for what the seat calls `handles`: that part of the grant stays with the driver,
 * until the program makes it.  So that part grows only together with a request, which the daemon answers when the device
 * buffer is as small as the rest of the grant says. */
#include "cuda/memory/handles.h"
#include "cuda/memory/pools.h"

/* How much the core grants beyond a request (core/memory/requests.py). */
#define SPARE_PART 64
#define SPARE_STEP (4 * CP_MIB)

static uint64_t used;    /* bytes: what the program has, or is about to make.  Pool lock */
static uint64_t granted; /* bytes: `handles` of the seat.  Pool lock */

uint64_t cp_handles_used(void) { return cp_relaxed(&used); }
uint64_t cp_handles_granted(void) { return cp_relaxed(&granted); }

void cp_handles_forget_grants(void) { used = granted = 0; }

static void set_granted(uint64_t bytes) {
  cp_store(&granted, bytes);
  cp_store(&cp.seat->handles, bytes);
}

uint64_t cp_handles_needed(void) { return used < granted ? used : granted; }
void cp_handles_lower(void) { set_granted(cp_handles_needed()); }

static void tell(void) {
  cp_pools_tell();
  cp_pools_tell_peak(0);
}

static uint64_t beyond(void) { return used > granted ? used - granted : 0; }

/* Pool lock held.  Is there nothing granted beyond what is in use?  The device buffer has that, and keeps it. */
static bool nothing_idle(void) { return cp.p_cap < cp_pools_extent(0) + granted + beyond(); }

/* The daemon may grant so much more than is asked for: it is to be for the next pieces. */
static uint64_t spare(void) { return cp_round_up(cp.capacity / SPARE_PART, CP_PIECE) + SPARE_STEP; }

/* True: what is granted for such memory is enough, or has been raised and must be asked for. */
static bool raise_if_none_is_idle(void) {
  cp_acquire(&cp.pool_lock);
  bool raise = !beyond() || nothing_idle();
  if (raise && beyond()) set_granted(used + spare());
  cp_release(&cp.pool_lock);
  return raise;
}

/* 0: enough is granted.  All that is granted beyond the device buffer is for such memory then. */
static uint64_t missing(void) {
  cp_acquire(&cp.pool_lock);
  uint64_t buffer = cp_pools_extent(0), total = buffer + used;
  bool enough = cp.p_cap >= total;
  if (enough && granted > cp.p_cap - buffer) set_granted(cp.p_cap - buffer);
  cp_release(&cp.pool_lock);
  return enough ? 0 : total;
}

/* With its turn a job has all that it has been granted. */
static void await_turn(void) {
  uint64_t leave = 0;
  struct cp_thread *t = cp_enter(&leave);
  cp_leave(t, leave);
}

static void nap(void) { syscall(SYS_nanosleep, &(struct timespec){.tv_nsec = CP_RETRY_US * 1000}, NULL); }

static bool raise(void) {
  for (uint64_t begin = cp_now_us(); !raise_if_none_is_idle(); nap()) {
    if (cp_now_us() - begin > CP_FAILING_US) return false;
    await_turn();
    cp_segments_give_back(1);
  }
  return true;
}

static void use(int64_t bytes) {
  cp_acquire(&cp.pool_lock);
  cp_store(&used, used + (uint64_t)bytes);
  tell();
  cp_release(&cp.pool_lock);
}

bool cp_handles_claim(uint64_t bytes) {
  use((int64_t)bytes);
  bool done = raise();
  for (uint64_t total; done && (total = missing());) done = cp_grow(0, total, false);
  if (!done) cp_handles_unclaim(bytes, true);
  return done;
}

void cp_handles_unclaim(uint64_t bytes, bool at_once) {
  use(-(int64_t)bytes);
  cp_segments_give_back(at_once);
}
