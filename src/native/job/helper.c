/* The helper thread: early release, forced revocation, trimming, offload and restore, snapshots for forks.
 * It sleeps on the seat's doorbell and costs nothing while nothing rings it. */
#include <pthread.h>
#include <signal.h>

#include "base/process.h"

#define TRIM_LEAST (16 * CP_MIB)
#define MOST_PAUSE_US 80000

/* ---- early release --------------------------------------------------------------------------------------------------- */

/* Close the arenas while the turn is kept and see whether anybody touches them: the host device's access bit. */
static void probe(uint64_t now) {
  cp_acquire(&cp.gate_lock);
  if (cp.gate == CP_OPEN && cp_load(&cp.seat->turn)) {
    cp_store(&cp.gate, CP_HELD);
    cp.probe_us = now;
    cp_arenas_close(&cp.arenas); /* half closed is fine: the next touch opens everything */
  }
  cp_release(&cp.gate_lock);
}

static uint64_t calls(void) { return cp_relaxed(&cp.allocs) + cp_relaxed(&cp.frees); }

int64_t cp_look_again(uint64_t seen, uint64_t now, uint64_t pause_us) {
  cp.look_us = now + pause_us;
  cp.seen_calls = seen;
  return pause_us ? (int64_t)pause_us : 1;
}

/* The holder has been found at work.  One that is only watched is looked at less and less often. */
uint64_t cp_busy_pause(uint64_t grace) {
  uint64_t most = grace > MOST_PAUSE_US ? grace : MOST_PAUSE_US;
  bool asked = cp_load(&cp.seat->yield) == CP_YIELD_BOUNDARY;
  return cp.pause_us = asked || cp.pause_us < grace ? grace : 2 * cp.pause_us < most ? 2 * cp.pause_us : most;
}

static int64_t busy(uint64_t now, uint64_t grace) {
  uint64_t since = cp.probe_us ? cp.probe_us : now, due = since + cp_busy_pause(grace);
  cp.probe_us = 0;
  return cp_look_again(calls(), now, due > now ? due - now : 0);
}

/* The holder has been asked to give way, or another job waits.  Returns how long to sleep, in microseconds.
 * Allocations and frees are signs of device use that cost nothing to see; without them the pages are closed. */
static int64_t watch_holder(void) {
  uint64_t now = cp_now_us(), grace = cp_load(&cp.seat->grace_us);
  if (grace < 100) grace = 100;
  if (!cp.yield_seen_us) {
    cp.yield_seen_us = now;
    cp.probe_us = cp.pause_us = 0;
    return cp_look_again(calls(), now, grace / 2);
  }
  if (cp_load(&cp.gate) == CP_OPEN) { /* never probed, or touched since */
    if (cp.pause_us > grace && cp_load(&cp.seat->yield) == CP_YIELD_BOUNDARY) { /* it was watched until now */
      cp.pause_us = grace;
      if (cp.look_us > now + grace) cp.look_us = now + grace;
    }
    if (cp.probe_us) return busy(now, grace);
    if (now < cp.look_us) return (int64_t)(cp.look_us - now);
    if (calls() != cp.seen_calls) return busy(now, grace);
    probe(now);
    return (int64_t)grace;
  }
  if (!cp.probe_us) cp.probe_us = now; /* closed by a fork, or granted and not touched yet */
  if (now < cp.probe_us + grace) return (int64_t)(cp.probe_us + grace - now);
  cp_turn_end(CP_BY_EARLY);
  return cp_load(&cp.seat->turn) ? CP_RETRY_US : -1;
}

/* ---- memory ---------------------------------------------------------------------------------------------------------- */

/* Gate lock held.  Takes the mover's lock if the device buffer holds all of the content and nobody else needs it. */
static bool ours_alone(void) {
  struct cp_host *h = &cp.arenas.host;
  if (cp.gate != CP_CLOSED || cp_fork_pending()) return false;
  cp_host_lock(h);
  if (!cp_is_out() && cp_host_next(h, 0) == h->chunks) return true;
  cp_host_unlock(h);
  return false;
}

/* Pool and gate lock held.  Persistent bytes that no live block needs; from when arenas are packed they are those of pages. */
static size_t idle_bytes(void) {
  const struct cp_arenas *a = &cp.arenas;
  const struct cp_pool *p = &a->win[0].pool;
  if (cp.packed) return a->packed ? cp_arenas_persistent(a) - cp_arenas_covered(a) : 0;
  return cp_pool_high(p) - cp_pool_extent(p) + cp.retired_freed;
}

static void trim(void) {
  if (!cp_try(&cp.grow_lock)) return; /* a thread is waiting for memory, perhaps until this thread has moved ours out */
  cp_acquire(&cp.pool_lock);
  cp_acquire(&cp.gate_lock);
  size_t idle = idle_bytes(), given = 0;
  if (cp_grow_settle() && idle >= TRIM_LEAST && idle >= cp.p_cap / 4 && ours_alone()) {
    given = cp.arenas.packed ? cp_arenas_reclaim(&cp.arenas, idle) : cp_arenas_trim(&cp.arenas);
    cp_host_unlock(&cp.arenas.host);
    cp.retired_freed = 0;
    cp.p_cap = cp_arenas_persistent(&cp.arenas);
    cp_put(&cp.seat->p_used, cp.p_cap);
  }
  size_t total = cp.p_cap;
  cp_release(&cp.gate_lock);
  cp_release(&cp.pool_lock);
  cp_release(&cp.grow_lock);
  if (given) cp_send(CP_SHRUNK, 0, total, 0, 0);
}

/* ---- the thread -------------------------------------------------------------------------------------------------------- */

__thread bool cp_is_helper;

/* Of two times to sleep; negative: for ever. */
static int64_t sooner(int64_t a, int64_t b) { return a < 0 ? b : b < 0 || a < b ? a : b; }

static void *helper(void *unused) {
  (void)unused;
  cp_is_helper = true;
  struct cp_seat *s = cp.seat;
  for (uint32_t heard = cp_load(&s->bell) - 1;;) {
    uint32_t bell = cp_load(&s->bell);
    int64_t sleep_us = -1;
    if (bell != heard && cp.backend->take) cp.backend->take();
    heard = bell;
    cp_service_again();
    if (cp_load(&s->leave) == CP_LEAVE_ASKED && cp_leave_seat()) return NULL;
    if (cp_fork_pending()) cp_fork_answer();
    if (cp_load(&s->offload) == CP_OFFLOAD_DROP) cp_offload_drop();
    uint32_t yield = cp_load(&s->yield);
    if (!cp_load(&s->turn)) {
      cp.yield_seen_us = 0;
      if (cp_load(&s->offload) == CP_OFFLOAD_ASKED) cp.backend->offload ? cp.backend->offload() : cp_offload();
      cp.backend->trim ? cp.backend->trim() : trim();
    } else if (yield == CP_YIELD_NOW) {
      cp_turn_end(CP_BY_FORCE);
      if (cp_load(&s->turn) && cp_load(&s->yield) == CP_YIELD_NOW) cp_futex_wait(&s->bell, bell, CP_RETRY_US);
      continue;
    } else if (cp_load(&cp.ending)) { /* at a boundary */
      cp_turn_end(CP_BY_BOUNDARY);
      continue;
    } else if (yield == CP_YIELD_PAUSE) {
      cp.yield_seen_us = 0;
      sleep_us = cp_pause() ? -1 : CP_RETRY_US;
    } else {
      bool watched = yield == CP_YIELD_BOUNDARY || cp_load(&s->watch);
      if (!watched) cp.yield_seen_us = 0;
      sleep_us = sooner(!watched ? -1 : cp.backend->watch ? cp.backend->watch() : watch_holder(), cp_restore_step());
    }
    cp_promote_consider();
    if (sleep_us) cp_futex_wait(&s->bell, bell, sleep_us);
  }
  return NULL;
}

int cp_helper_start(void) {
  pthread_attr_t attributes;
  pthread_t thread;
  sigset_t all, old;
  sigfillset(&all);
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, 4 * CP_MIB); /* the driver's calls need some */
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_sigmask(SIG_SETMASK, &all, &old); /* signals are for the job's own threads */
  int r = pthread_create(&thread, &attributes, helper, NULL);
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  pthread_attr_destroy(&attributes);
  if (r) errno = r;
  return r ? -1 : 0;
}
