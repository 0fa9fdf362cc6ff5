/* A service: it says what its next turn is for, waits for the memory of the weights, takes the turn and gives it back.
 *
 * Weights lie outside the arenas, so the trap does not guard them.  They are the service's from the beginning of its turn to
 * the end: it computes with them in between only, and where the turn is taken from it in the middle all touches of
 * them wait (`cp_groups_bar`) until it has asked for them anew and has its next turn. */
#include "base/process.h"

#include "weights/groups_state.h"

#define LOOK_US 1000

struct cp_demand {
  uint64_t weights, bytes, reload_us, compute_us, deadline_us; /* as in the seat */
};

/* The turn that the demand was for is over, and it is not met yet. */
enum { NOT_LOST = 0, LOST = 1, DEMANDED_AGAIN = 2 };
static uint32_t lost;

/* Taken before the gate lock: no demand is forgotten while its weights are called back. */
static struct cp_lock demand_lock;
static uint64_t called_back; /* key of the weights, 0: none.  Lock held */

/* Gate lock held. */
static uint32_t next_number(void) {
  struct cp_seat *s = cp.seat;
  uint32_t number = s->demand_seq + 1 ? s->demand_seq + 1 : 1;
  cp_store(&s->demand_seq, number);
  return number;
}

bool cp_service_lost(void) { return cp_load(&lost) != NOT_LOST; }

uint32_t cp_service_wants(void) {
  if (!cp.seat->weights) return 0;
  if (cp_load(&lost) != LOST) return cp.seat->demand_seq;
  cp_store(&lost, DEMANDED_AGAIN);
  return next_number();
}

void cp_service_revoked(void) {
  uint64_t key = cp.seat->weights;
  if (!key) return;
  cp_groups_bar(key, true);
  cp_store(&lost, LOST);
}

bool cp_service_answered(void) {
  const struct cp_seat *s = cp.seat;
  return !cp_load(&s->weights) || cp_load(&s->placed_seq) == cp_load(&s->demand_seq);
}

static bool is_met(void) { return cp_service_answered() && cp_load(&cp.seat->turn); }

/* Demand lock held.  As long as they are lost nothing is written to where they were. */
static void call_back(void) {
  const struct cp_seat *s = cp.seat;
  if (cp_service_answered() && cp_load(&s->placed) != CP_PLACED_YES)
    cp_give_up("the weights do not fit onto the device any more");
  if (!is_met()) return;
  uint64_t key = cp_load(&s->weights);
  if (cp.backend->again) cp.backend->again(key);
  cp_acquire(&cp.gate_lock);
  if (cp_load(&lost) == DEMANDED_AGAIN && is_met()) { /* the turn may have been lost once more meanwhile */
    called_back = key;
    cp_store(&lost, NOT_LOST);
    cp_groups_bar(key, false);
  }
  cp_release(&cp.gate_lock);
}

void cp_service_again(void) {
  if (!cp_service_answered() && cp_load(&cp.seat->turn)) cp_turn_end(CP_BY_EARLY); /* it is for something else */
  if (cp_load(&lost) != DEMANDED_AGAIN) return;
  cp_acquire(&demand_lock);
  if (cp_load(&lost) == DEMANDED_AGAIN) call_back();
  cp_release(&demand_lock);
}

static void say(const struct cp_demand *demand) {
  struct cp_seat *s = cp.seat;
  cp_acquire(&cp.gate_lock);
  cp_put(&s->weights_bytes, demand->bytes);
  cp_put(&s->reload_us, demand->reload_us);
  cp_put(&s->compute_us, demand->compute_us);
  cp_put(&s->deadline_us, demand->deadline_us);
  cp_store(&s->weights, demand->weights);
  uint32_t number = next_number();
  cp_store(&s->want, CP_WANT_TURN);
  cp_section_begin(); /* as in cp_turn_await */
  cp_release(&cp.gate_lock);
  cp_send(CP_WANT, number, 0, 0, 0);
  cp_section_end();
}

/* To the latest one: it has been made anew where a turn came and went meanwhile. */
static void await_answer(void) {
  struct cp_seat *s = cp.seat;
  for (;;) {
    uint32_t seen = cp_load(&s->placed_seq);
    if (seen == cp_load(&s->demand_seq)) return;
    cp_await_daemon(&s->placed_seq, seen);
  }
}

/* Returns with the turn. */
CP_EXPORT void cp_service_take(void) {
  while (cp_active()) {
    cp_acquire(&cp.gate_lock);
    if (cp.gate == CP_OPEN) {
      cp_release(&cp.gate_lock);
      return;
    }
    cp_turn_await(cp.arenas.lo);
  }
}

/* Who computes with weights has stopped their copying, but may not have known of that which the helper thread began. */
static void forget_demand(void) {
  cp_acquire(&demand_lock);
  if (called_back) cp_groups_halt(called_back);
  called_back = 0;
  cp_acquire(&cp.gate_lock);
  cp_store(&cp.seat->weights, 0);
  cp_store(&lost, NOT_LOST);
  cp_release(&cp.gate_lock);
  cp_release(&demand_lock);
}

/* What the turn was wanted for is done, and it is about to be released.  1: before that, this thread has to say which blocks
 * are live (`cp_live_blocks`). */
CP_EXPORT int cp_service_ending(void) {
  if (!cp_active() || !cp.backend->leave || cp_load(&cp.seat->want)) return 0;
  forget_demand();
  return cp.backend->leave();
}

static void leave_by_helper(void) {
  while (cp_load(&cp.seat->turn)) {
    cp.backend->leave();
    uint32_t ending = cp_load(&cp.ending);
    cp_futex_wait(&cp.ending, ending, ending ? -1 : LOOK_US); /* 0: not now */
  }
}

/* Gives the turn back; one that is still to come is awaited before.  What it was wanted for is done. */
CP_EXPORT void cp_service_release(void) {
  if (!cp_active()) return;
  if (cp_load(&cp.seat->want)) cp_service_take();
  forget_demand();
  cp.backend->leave ? leave_by_helper() : cp_turn_end(CP_BY_BOUNDARY);
  if (cp_groups_any_dropped()) cp_notify(cp.seat); /* the helper thread closes them now */
}

/* Waits until the weights' memory is on the device.  0, with the descriptor of their memory, the caller's to close, or -1: that
 * of last time; CP_PLACED_*: why that can never be; ENOTCONN: this process has no seat; ENOMEM: the memory cannot be mapped.
 * It has given its turn back. */
CP_EXPORT int cp_service_place(const struct cp_demand *demand, int *file) {
  *file = -1;
  if (!cp_active()) return ENOTCONN;
  cp_service_release();
  say(demand);
  await_answer();
  struct cp_seat *s = cp.seat;
  if (cp_load(&s->placed) != CP_PLACED_YES) {
    int why = (int)cp_load(&s->placed);
    cp_store(&s->want, CP_WANT_NO);
    cp_service_release();
    return why;
  }
  return cp.backend->weights(demand->weights, file);
}
