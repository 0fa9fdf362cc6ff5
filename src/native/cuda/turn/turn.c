/* Turns of a job on a CUDA device.
 *
 * A turn ends in two steps.  The helper thread shuts the gate, waits until no call is in flight and everything that was
 * submitted has ended (quiesce); it holds no lock meanwhile.  Then the turn goes over as on every device (turn/turn.c).  If it
 * takes too long the gate is opened again: what is under way may be waiting for the job's own next call. */
#include "cuda/turn/tracked_objects.h"
#include "cuda/memory/grant.h"
#include "cuda/memory/handles.h"
#include "cuda/memory/weights.h"
#include "weights/groups.h"

#include <sched.h>

#define PATIENCE_US 250000u /* for a turn to end; doubled each time that it was not enough, up to */
#define MOST_PATIENCE_US 30000000u
#define MOST_SAVE_PAUSE_US 1000000u
#define SPIN_US 50u /* then sleep between two looks */
#define LOOK_US 40

/* Values of cp.ending. */
enum { NOT_ENDING = 0, ASKED = 1 /* at a boundary */, ENDING = 2 };

static bool quiet; /* quiesced, and nobody has been let in since */
static uint64_t patience_us = PATIENCE_US;
static uint64_t save_pause_us, save_again_us; /* there was no memory for residue: gate lock */

/* ---- the turn begins and ends ------------------------------------------------------------------------------------------ */

static void not_ending(void) {
  cp_live_forget();
  cp_store(&cp.ending, NOT_ENDING);
  cp_futex_wake(&cp.ending);
}

static void nap(uint64_t us) {
  cp_add(&cp_syscalls, 1);
  syscall(SYS_nanosleep, &(struct timespec){.tv_nsec = (long)us * 1000}, NULL);
}

/* At exit the driver may be gone, and then says so itself. */
static bool usable(void) {
  return cp_extents_hold() || !cp_segments_serve() || cp_load(&cp_drain_stopped);
}

/* What the daemon has sent is mapped before anything of it is used.  That may fail for a while. */
static void get_memory(void) {
  cp_extents_take(true);
  for (uint64_t begin = cp_now_us(); !usable(); cp_extents_take(true)) {
    if (cp_now_us() - begin > CP_FAILING_US) cp_give_up("it is smaller than before or cannot be mapped");
    nap(CP_RETRY_US);
  }
  cp_lower_limits();
  cp_handles_restore();
  cp_residue_restore();
}

/* A service that has lost its turn in the middle goes on when all its weights are there again. */
static void get_weights_back(void) {
  uint64_t key = cp.seat->weights, begin = cp_now_us();
  for (; key && !cp_groups_back(key); nap(CP_RETRY_US))
    if (cp_now_us() - begin > CP_FAILING_US) cp_give_up("the weights cannot be loaded again");
}

static void open_gate(const void *unused) {
  (void)unused;
  uint64_t begin = cp_now_us();
  if (cp_load(&cp.ending)) return;
  bool fresh = cp.gate == CP_CLOSED;
  if (fresh && !cp_service_answered()) { /* the helper gives this turn back */
    nap(LOOK_US);
    return;
  }
  if (fresh) get_memory();
  if (fresh) get_weights_back();
  if (fresh) cp_turn_begins(begin);
  quiet = false;
  cp_store(&cp.gate, CP_OPEN);
  cp_shut_bit(CP_SHUT, false);
  if (fresh) cp_turn_costs(cp_now_us() - begin + cp.close_us);
}

/* True: the gate is shut, and was open.  False and `closed`: nobody has used the turn. */
static bool shut_gate(bool *closed) {
  cp_acquire(&cp.gate_lock);
  *closed = cp.gate == CP_CLOSED;
  bool mine = cp_load(&cp.seat->turn) && !*closed && !cp_capturing();
  if (mine) {
    cp_store(&cp.gate, CP_HELD);
    cp_store(&cp.ending, ENDING);
    cp_shut_bit(CP_SHUT, true);
  } else if (cp_load(&cp.ending)) { /* a capture has begun since the boundary: the turn stays */
    if (!*closed) cp_store(&cp.gate, CP_OPEN), cp_shut_bit(CP_SHUT, false);
    not_ending();
  }
  cp_release(&cp.gate_lock);
  if (mine) cp_cuda_barrier();
  return mine;
}

static void reopen(void) {
  cp_acquire(&cp.gate_lock);
  quiet = false;
  if (!cp_load(&cp.seat->paused)) { /* else the gate stays shut, for the sake of a service */
    cp_store(&cp.gate, CP_OPEN);
    cp_shut_bit(CP_SHUT, false);
  }
  not_ending();
  cp_release(&cp.gate_lock);
}

/* For a pause.  What has been submitted goes on: how much that can be is bounded (run_ahead.c). */
static bool shut(void) {
  if (cp_capturing()) return false;
  cp_store(&cp.gate, CP_HELD);
  cp_shut_bit(CP_SHUT, true);
  cp_cuda_barrier();
  return true;
}

static bool none_in_flight(void) {
  bool in_flight;
  cp_cuda_calls(&in_flight);
  return !in_flight;
}

bool cp_until(bool (*ask)(void), uint64_t begin, uint64_t limit) {
  while (!ask()) {
    uint64_t spent = cp_now_us() - begin;
    if (spent >= limit) return false;
    if (spent >= SPIN_US) {
      nap(LOOK_US);
      continue;
    }
    cp_add(&cp_syscalls, 1);
    sched_yield();
  }
  return true;
}

/* Gate shut.  A capture may have begun just before. */
static bool drain(uint64_t limit) {
  if (!cp_until(none_in_flight, cp_now_us(), limit) || cp_capturing()) return false;
  uint64_t asked = cp_now_us();
  cp_drain_begin();
  bool ended = cp_drained();
  cp.close_us = cp_now_us() - asked; /* waiting, before and after, is for the job's own work */
  return ended || cp_until(cp_drained, asked, limit);
}

/* For a probe the limit is 0.  True: the gate is shut and the device has nothing more of ours, or it was never opened. */
static bool quiesce_within(uint64_t limit) {
  bool closed;
  if (!shut_gate(&closed)) return closed;
  quiet = drain(limit);
  if (!quiet) reopen();
  return quiet;
}

/* At a boundary the work of an iteration or two may be under way. */
static uint64_t patience(void) {
  uint64_t least = PATIENCE_US + 4 * cp_relaxed(&cp.boundary.cycle_us);
  if (least > MOST_PATIENCE_US) least = MOST_PATIENCE_US;
  return patience_us > least ? patience_us : least;
}

static bool quiesce(void) {
  if (!cp_load(&cp.seat->turn) || cp_now_us() < cp_load(&save_again_us)) return false;
  bool done = quiesce_within(patience());
  if (done)
    patience_us = PATIENCE_US;
  else if (!cp_capturing() && patience_us < MOST_PATIENCE_US)
    patience_us *= 2;
  if (done) cp_live_await();
  return done;
}

static void save_later(void) {
  save_pause_us = save_pause_us ? 2 * save_pause_us : CP_RETRY_US;
  if (save_pause_us > MOST_SAVE_PAUSE_US) save_pause_us = MOST_SAVE_PAUSE_US;
  cp_store(&save_again_us, cp_now_us() + save_pause_us);
}

static bool close_gate(uint32_t cause) {
  (void)cause;
  uint64_t begin = cp_now_us();
  if (cp.gate == CP_CLOSED) {
    if (cp_load(&cp.ending)) not_ending(); /* asked once more, for a turn that nobody has used */
    return true;
  }
  if (cp.gate != CP_HELD || !quiet) return false; /* opened since by a first use */
  quiet = false;
  if (!cp_residue_save()) {
    save_later();
    not_ending(); /* the next call opens the gate again */
    return false;
  }
  save_pause_us = 0;
  if (cp_load(&cp.seat->close_lane)) cp_extents_close();
  cp_store(&cp.gate, CP_CLOSED);
  if (cp_load(&cp.seat->offloaded)) cp_store(&cp.seat->offloaded, 0);
  cp_put(&cp.seat->residue, cp_residue_bytes());
  cp_put(&cp.seat->residue_total, cp.seat->residue_total + cp_residue_bytes());
  cp.close_us += cp_now_us() - begin;
  cp_ahead_forget();
  cp_backlog_forget();
  not_ending();
  return true;
}

/* ---- early release and boundaries -------------------------------------------------------------------------------------- */

/* Work has been submitted, or is still going on: looked at less and less often, unless it was asked to give way. */
static int64_t busy(uint64_t calls, uint64_t now, uint64_t grace) {
  cp.probe_us = 0;
  return cp_look_again(calls, now, cp_busy_pause(grace));
}

/* Off the device is who submits nothing for the grace, and has nothing on the device at its beginning and at its end. */
static int64_t watch(void) {
  uint64_t now = cp_now_us(), grace = cp_load(&cp.seat->grace_us);
  bool in_flight;
  uint64_t calls = cp_cuda_calls(&in_flight);
  if (grace < 100) grace = 100;
  if (!cp.yield_seen_us) {
    cp.yield_seen_us = now;
    cp.probe_us = cp.pause_us = 0;
    return cp_look_again(calls, now, grace / 2);
  }
  if (in_flight || calls != cp.seen_calls || cp_capturing()) return busy(calls, now, grace);
  if (now < cp.look_us) return (int64_t)(cp.look_us - now);
  if (cp.probe_us) { /* idle since then */
    cp_turn_end(CP_BY_EARLY);
    return cp_load(&cp.seat->turn) ? CP_RETRY_US : -1;
  }
  bool idle = quiesce_within(0);
  if (idle && quiet) reopen();
  now = cp_now_us();
  if (!idle) return busy(calls, now, grace);
  cp.probe_us = now;
  return cp_look_again(calls, now, grace);
}

/* Called with the interpreter's lock held: the helper does the waiting.  Until it has, the gate is shut. */
static bool boundary(void) {
  struct cp_seat *s = cp.seat;
  cp_cuda_check_use();
  if (CP_LIKELY(!cp_relaxed(&s->yield) && !cp_relaxed(&s->watch) && !cp_relaxed(&s->successor))) return false;
  if (cp_capturing() || !cp_load(&s->turn)) return false;
  uint32_t yield = cp_load(&s->yield);
  if (yield == CP_YIELD_PAUSE) return false;
  if (yield == CP_YIELD_NO) {
    cp_ahead_boundary();
    return false;
  }
  cp_acquire(&cp.gate_lock);
  bool ask = cp.gate == CP_OPEN && cp_load(&s->turn) && !cp_load(&cp.ending) && cp_now_us() >= save_again_us;
  if (ask) {
    cp_store(&cp.gate, CP_HELD);
    cp_store(&cp.ending, ASKED);
    cp_shut_bit(CP_SHUT, true);
  }
  bool list = ask && cp_live_ask();
  if (ask) cp_notify(s); /* under the lock: a handler that is about to wait for the helper finds it awake */
  cp_release(&cp.gate_lock);
  return list;
}

/* As at a boundary, whichever job waits.  A turn that nobody has used goes, too. */
static bool leave(void) {
  cp_acquire(&cp.gate_lock);
  bool ask = cp_load(&cp.seat->turn) && !cp_load(&cp.ending) && !cp_capturing() && cp_now_us() >= save_again_us;
  bool used = ask && cp.gate == CP_OPEN;
  if (used) {
    cp_store(&cp.gate, CP_HELD);
    cp_shut_bit(CP_SHUT, true);
  }
  if (ask) cp_store(&cp.ending, ASKED);
  bool list = used && cp_live_ask();
  if (ask) cp_notify(cp.seat);
  cp_release(&cp.gate_lock);
  return list;
}

static void take(void) {
  cp_backlog_bound();
  cp_extents_take(false);
}

const struct cp_backend cp_cuda_backend = {.loaded = cp_driver_known,
                                           .attach = cp_cuda_attach,
                                           .attached = cp_cuda_attached,
                                           .pending = cp_cuda_pending,
                                           .before_fork = cp_cuda_before_fork,
                                           .after_fork = cp_cuda_after_fork,
                                           .in_child = cp_cuda_in_child,
                                           .open = open_gate,
                                           .close = close_gate,
                                           .ended = cp_extents_let_go,
                                           .shut = shut,
                                           .quiesce = quiesce,
                                           .watch = watch,
                                           .boundary = boundary,
                                           .trim = cp_segments_trim,
                                           .offload = cp_handles_offload,
                                           .keeps_turn = cp_capturing,
                                           .take = take,
                                           .leave = leave,
                                           .weights = cp_weights_take};

/* The rest of the library knows this backend by its kind alone. */
const struct cp_backend *const cp_backends[CP_KINDS] = {[CP_KIND_HOST] = &cp_host_backend,
                                                        [CP_KIND_CUDA] = &cp_cuda_backend};
