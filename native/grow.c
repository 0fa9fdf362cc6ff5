/* Requests for memory: the job asks, the daemon answers in the seat. */
#include "process.h"

static void take_limits(void) {
  cp.p_cap = cp_load(&cp.seat->p_limit);
  cp.e_cap = cp_load(&cp.seat->e_limit);
}

/* False: interrupted by SIGINT, the answer may still come. */
static bool wait_answer(uint32_t seq, bool interruptible) {
  uint32_t ack, before = cp_load(&cp.interrupts);
  while ((int32_t)((ack = cp_load(&cp.seat->grow_ack)) - seq) < 0) {
    if (interruptible && cp_load(&cp.interrupts) != before) return false;
    cp_futex_wait(&cp.seat->grow_ack, ack, -1);
  }
  return true;
}

/* Grow lock held.  One request at a time; optional ones are answered at once. */
void cp_promote_answer(bool wait) {
  if (!cp.promote_seq) return;
  if (wait) wait_answer(cp.promote_seq, false);
  if ((int32_t)(cp_load(&cp.seat->grow_ack) - cp.promote_seq) < 0) return;
  cp.promote_granted = cp_load(&cp.seat->grow_status) == CP_GROW_GRANTED;
  cp.promote_seq = 0;
}

static uint32_t ask(uint32_t class_, size_t total, bool optional) {
  uint32_t seq = cp.seat->grow_seq + 1;
  cp_store(&cp.seat->grow_class, class_ | (optional ? 256u : 0));
  cp_store(&cp.seat->grow_total, total);
  cp_store(&cp.seat->grow_seq, seq);
  cp_send(CP_GROW, class_, total, seq, optional);
  return seq;
}

/* Grow lock held.  Does not wait: the answer is looked for later. */
void cp_promote_ask(size_t total) { cp.promote_seq = ask(0, total, true); }

bool cp_grow(uint32_t class_, size_t total, bool optional) {
  cp_acquire(&cp.grow_lock);
  if (!cp_active()) { /* the seat has just gone */
    cp_release(&cp.grow_lock);
    return false;
  }
  cp_promote_answer(true);
  size_t *cap = class_ ? &cp.e_cap : &cp.p_cap;
  if (*cap < total && wait_answer(ask(class_, total, optional), true) &&
      cp_load(&cp.seat->grow_status) == CP_GROW_GRANTED) {
    take_limits();
    if (cp.backend->take) cp.backend->take();
    /* Its memory may have been moved out meanwhile, and the limits with it: what was granted is back before its turn. */
    if (*cap < total) *cap = total;
  }
  bool enough = *cap >= total;
  cp_release(&cp.grow_lock);
  return enough;
}
