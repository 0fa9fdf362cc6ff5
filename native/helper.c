/* The helper thread: early release, forced revocation, trimming, offload, a new lane, snapshots for forks.
 * It sleeps on the seat's bell and costs nothing while nobody rings. */
#include <pthread.h>
#include <signal.h>

#include "process.h"

#define TRIM_LEAST (16 * CP_MIB)

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

/* The holder has been asked to give way.  Returns how long to sleep, in microseconds. */
static int64_t watch_holder(void) {
  uint64_t now = cp_now_us(), grace = cp_load(&cp.seat->grace_us);
  if (grace < 100) grace = 100;
  if (!cp.yield_seen_us) {
    cp.yield_seen_us = now;
    cp.probe_us = 0;
    return (int64_t)(grace / 2);
  }
  uint32_t gate = cp_load(&cp.gate);
  if (gate == CP_OPEN) { /* never probed, or touched since */
    uint64_t since = cp.probe_us ? cp.probe_us : cp.yield_seen_us;
    uint64_t due = since + (cp.probe_us ? grace : grace / 2);
    if (now < due) return (int64_t)(due - now);
    probe(now);
    return (int64_t)grace;
  }
  if (!cp.probe_us) cp.probe_us = now; /* closed by a fork, or granted and not touched yet */
  if (now < cp.probe_us + grace) return (int64_t)(cp.probe_us + grace - now);
  cp_turn_end(CP_BY_EARLY);
  return -1;
}

/* ---- memory ---------------------------------------------------------------------------------------------------------- */

static void trim(void) {
  cp_acquire(&cp.grow_lock);
  cp_acquire(&cp.pool_lock);
  cp_acquire(&cp.gate_lock);
  const struct cp_pool *p = &cp.arenas.win[0].pool;
  size_t idle = cp_pool_high(p) - cp_pool_extent(p) + cp.retired_freed, given = 0;
  if (idle >= TRIM_LEAST && idle >= cp.p_cap / 4 && !cp.seat->offloaded) {
    given = cp_arenas_trim(&cp.arenas);
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

static void offload(void) {
  bool done = false;
  cp_acquire(&cp.pool_lock);
  cp_acquire(&cp.gate_lock);
  if (!cp_load(&cp.seat->turn) && cp.gate == CP_CLOSED && !cp_fork_pending() && !cp.seat->offloaded) {
    done = !cp_arenas_offload(&cp.arenas);
    if (done) cp_store(&cp.seat->offloaded, 1);
  }
  if (done) cp_store(&cp.seat->offload, CP_OFFLOAD_DONE);
  cp_release(&cp.gate_lock);
  cp_release(&cp.pool_lock);
  if (done) cp_send(CP_OFFLOADED, 0, 0, 0, 0);
}

/* ---- the thread -------------------------------------------------------------------------------------------------------- */

static void *helper(void *unused) {
  (void)unused;
  struct cp_seat *s = cp.seat;
  for (;;) {
    uint32_t bell = cp_load(&s->bell);
    int64_t sleep_us = -1;
    if (cp_fork_wanted()) {
      cp_acquire(&cp.gate_lock);
      if (cp_fork_pending()) cp_fork_settle();
      cp_release(&cp.gate_lock);
    }
    uint32_t yield = cp_load(&s->yield);
    if (!cp_load(&s->turn)) {
      cp.yield_seen_us = 0;
      if (cp_load(&s->offload) == CP_OFFLOAD_ASKED) offload();
      trim();
    } else if (yield == CP_YIELD_NOW) {
      cp_turn_end(CP_BY_FORCE);
      continue;
    } else if (yield == CP_YIELD_BOUNDARY) {
      sleep_us = watch_holder();
    } else
      cp.yield_seen_us = 0;
    cp_promote_consider();
    cp_futex_wait(&s->bell, bell, sleep_us);
  }
  return NULL;
}

int cp_helper_start(void) {
  pthread_attr_t attributes;
  pthread_t thread;
  sigset_t all, old;
  sigfillset(&all);
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, 256 * CP_KIB);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_sigmask(SIG_SETMASK, &all, &old); /* signals are for the job's own threads */
  int r = pthread_create(&thread, &attributes, helper, NULL);
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  pthread_attr_destroy(&attributes);
  if (r) errno = r;
  return r ? -1 : 0;
}
