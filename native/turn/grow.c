/* Requests for memory: the job asks, the daemon answers in the seat. */
#include "base/process.h"

/* In seat.grow_class. */
enum { OPTIONAL = 256, WITHDRAWN = 512 };

static void take_limits(void) {
  cp.p_cap = cp_load(&cp.seat->p_limit);
  cp.e_cap = cp_load(&cp.seat->e_limit);
}

/* The request whose answer nobody has waited for, 0: none.  Grow lock held. */
static struct {
  uint32_t seq, class_;
  bool optional; /* it is answered at once; otherwise it was left by SIGINT */
} pending;

static bool is_answered(uint32_t seq) { return (int32_t)(cp_load(&cp.seat->grow_ack) - seq) >= 0; }

static void wait_answer(uint32_t seq) {
  for (uint32_t ack = cp_load(&cp.seat->grow_ack); !is_answered(seq); ack = cp_load(&cp.seat->grow_ack))
    cp_futex_wait(&cp.seat->grow_ack, ack, -1);
}

/* False: there have been SIGINTs beyond so many, and the answer may still come.  Their handler wakes us. */
static bool wait_unless_interrupted(uint32_t seq, uint32_t interrupts) {
  for (uint32_t ack = cp_load(&cp.seat->grow_ack); !is_answered(seq); ack = cp_load(&cp.seat->grow_ack)) {
    if (cp_load(&cp.interrupts) != interrupts) return false;
    cp_futex_wait(&cp.seat->grow_ack, ack, -1);
  }
  return true;
}

/* Grow lock held.  One request at a time; optional ones are answered at once. */
void cp_promote_answer(bool wait) {
  if (!cp.promote_seq) return;
  if (wait) wait_answer(cp.promote_seq);
  if (!is_answered(cp.promote_seq)) return;
  cp.promote_granted = cp_load(&cp.seat->grow_status) == CP_GROW_GRANTED;
  cp.promote_seq = 0;
}

/* Interrupted: the daemon need not look for memory any more.  The answer comes as soon as it has heard that, or crosses it.
 * A daemon that does not know this packet answers as if it had not come. */
static void withdraw(uint32_t class_, uint32_t seq) {
  cp_store(&cp.seat->grow_class, class_ | WITHDRAWN);
  cp_send(CP_WITHDRAWN, class_, 0, seq, 0);
}

static uint32_t ask(uint32_t class_, size_t total, bool optional) {
  uint32_t seq = cp.seat->grow_seq + 1;
  cp_store(&cp.seat->grow_class, class_ | (optional ? (uint32_t)OPTIONAL : 0));
  cp_store(&cp.seat->grow_total, total);
  cp_store(&cp.seat->grow_seq, seq);
  cp_send(CP_GROW, class_, total, seq, optional);
  return seq;
}

bool cp_grow_settle(void) {
  if (pending.seq && !is_answered(pending.seq)) return false;
  if (pending.seq && cp_load(&cp.seat->p_limit) > cp.p_cap) cp_store(&cp.p_cap, cp.seat->p_limit);
  if (pending.seq && cp_load(&cp.seat->e_limit) > cp.e_cap) cp_store(&cp.e_cap, cp.seat->e_limit);
  pending.seq = 0;
  return true;
}

void cp_grow_forget(void) { pending.seq = 0; }

/* Grow lock held.  A request of the same class takes the place of one that was left by SIGINT, but an answer does not say
 * which class it is about.  False: interrupted again. */
static bool settle_other(uint32_t class_) {
  if (cp_grow_settle() || (pending.class_ == class_ && !pending.optional)) return true;
  if (!wait_unless_interrupted(pending.seq, cp_load(&cp.interrupts))) return false;
  return cp_grow_settle();
}

static bool ask_and_wait(uint32_t class_, size_t total, bool optional) {
  uint32_t interrupts = cp_load(&cp.interrupts), seq = ask(class_, total, optional);
  bool answered = wait_unless_interrupted(seq, interrupts);
  if (!answered && !optional) withdraw(class_, seq);
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
  size_t *cap = class_ == 1 ? &cp.e_cap : &cp.p_cap;
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
