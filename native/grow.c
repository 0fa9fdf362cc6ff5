/* Requests for memory: the job asks, the daemon answers in the seat. */
#include "process.h"

static void take_limits(void) {
  cp.p_cap = cp_load(&cp.seat->p_limit);
  cp.e_cap = cp_load(&cp.seat->e_limit);
}

/* The request whose answer nobody has waited for, 0: none.  Grow lock held. */
static struct {
  uint32_t seq, class_;
  bool optional; /* it is answered at once; otherwise it was left by SIGINT */
} pending;

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

bool cp_grow_settle(void) {
  if (pending.seq && (int32_t)(cp_load(&cp.seat->grow_ack) - pending.seq) < 0) return false;
  if (pending.seq && cp_load(&cp.seat->p_limit) > cp.p_cap) cp_store(&cp.p_cap, cp.seat->p_limit);
  if (pending.seq && cp_load(&cp.seat->e_limit) > cp.e_cap) cp_store(&cp.e_cap, cp.seat->e_limit);
  pending.seq = 0;
  return true;
}

/* Grow lock held.  A request of the same class takes the place of one that was left by SIGINT, but an answer does not say
 * which class it is about.  False: interrupted again. */
static bool settle_other(uint32_t class_) {
  if (cp_grow_settle() || (pending.class_ == class_ && !pending.optional)) return true;
  if (!wait_answer(pending.seq, true)) return false;
  return cp_grow_settle();
}

static bool ask_and_wait(uint32_t class_, size_t total, bool optional) {
  uint32_t seq = ask(class_, total, optional);
  bool answered = wait_answer(seq, true);
  pending.seq = answered ? 0 : seq;
  pending.class_ = class_;
  pending.optional = optional;
  return answered && cp_load(&cp.seat->grow_status) == CP_GROW_GRANTED;
}

void cp_grow_ask(uint32_t class_, size_t total) {
  pending.seq = ask(class_, total, true);
  pending.class_ = class_;
  pending.optional = true;
}

/* Grow lock held, all settled.  Does not wait: the answer is looked for later. */
void cp_promote_ask(size_t total) { cp.promote_seq = ask(0, total, true); }

bool cp_grow(uint32_t class_, size_t total, bool optional) {
  cp_acquire(&cp.grow_lock);
  if (!cp_active()) { /* the seat has just gone */
    cp_release(&cp.grow_lock);
    return false;
  }
  cp_promote_answer(true);
  size_t *cap = class_ ? &cp.e_cap : &cp.p_cap;
  if (settle_other(class_) && *cap < total && ask_and_wait(class_, total, optional)) {
    take_limits();
    if (cp.backend->take) cp.backend->take();
    /* Its memory may have been moved out meanwhile, and the limits with it: what was granted is back before its turn. */
    if (*cap < total) *cap = total;
  }
  bool enough = *cap >= total;
  cp_release(&cp.grow_lock);
  return enough;
}
