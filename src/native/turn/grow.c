/* Requests for memory: the job asks, the daemon answers in the seat. */
#include "base/process.h"

/* In seat.grow_class. */
enum { OPTIONAL = 256, WITHDRAWN = 512, KEEPS_TURN = 1024, PACKS = 2048 };

static void take_limits(void) {
  cp.p_cap = cp_load(&cp.seat->p_limit);
  cp.e_cap = cp_load(&cp.seat->e_limit);
}

/* The request whose answer nobody has waited for, 0: none.  Grow lock held. */
static struct {
  uint32_t seq, class_;
  size_t total;
  bool optional; /* it is answered at once; otherwise it was left by SIGINT */
  bool put_off;  /* or its thread runs handlers, and waits on then */
} pending;

static bool is_answered(uint32_t seq) { return (int32_t)(cp_load(&cp.seat->grow_ack) - seq) >= 0; }

static void wait_answer(uint32_t seq) {
  for (uint32_t ack = cp_load(&cp.seat->grow_ack); !is_answered(seq); ack = cp_load(&cp.seat->grow_ack))
    cp_await_daemon(&cp.seat->grow_ack, ack);
}

/* False: there have been SIGINTs beyond so many, or a handler is to run, and the answer may still come.  A handler of
 * SIGINT wakes us. */
static bool wait_unless_interrupted(uint32_t seq, uint32_t interrupts) {
  for (uint32_t ack = cp_load(&cp.seat->grow_ack); !is_answered(seq); ack = cp_load(&cp.seat->grow_ack)) {
    if (cp_load(&cp.interrupts) != interrupts || cp_section_deferred()) return false;
    cp_await_daemon(&cp.seat->grow_ack, ack);
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

/* flags: OPTIONAL, PACKS. */
static uint32_t ask_for(uint32_t class_, size_t total, uint32_t flags) {
  uint32_t seq = cp.seat->grow_seq + 1;
  if (cp.backend->keeps_turn && cp.backend->keeps_turn()) flags |= KEEPS_TURN;
  cp_store(&cp.seat->grow_class, class_ | flags);
  cp_store(&cp.seat->grow_total, total);
  cp_store(&cp.seat->grow_seq, seq);
  uint64_t told = (flags & OPTIONAL ? 1u : 0) | (flags & KEEPS_TURN ? 2u : 0) | (flags & PACKS ? 4u : 0);
  cp_send(CP_GROW, class_, total, seq, told);
  return seq;
}

static uint32_t ask(uint32_t class_, size_t total, bool optional) {
  return ask_for(class_, total, optional ? (uint32_t)OPTIONAL : 0);
}

bool cp_grow_settle(void) {
  if (pending.seq && !is_answered(pending.seq)) return false;
  if (pending.seq && cp_load(&cp.seat->p_limit) > cp.p_cap) cp_store(&cp.p_cap, cp.seat->p_limit);
  if (pending.seq && cp_load(&cp.seat->e_limit) > cp.e_cap) cp_store(&cp.e_cap, cp.seat->e_limit);
  pending.seq = 0;
  return true;
}

void cp_grow_forget(void) { pending.seq = 0; }

static bool goes_on(uint32_t class_, size_t total) {
  return pending.seq && pending.put_off && pending.class_ == class_ && pending.total == total;
}

/* Grow lock held.  A request of the same class takes the place of one that was left by SIGINT, but an answer does not say
 * which class it is about.  False: interrupted again. */
static bool settle_other(uint32_t class_, uint32_t interrupts) {
  if (cp_grow_settle() || (pending.class_ == class_ && !pending.optional)) return true;
  if (pending.put_off) withdraw(pending.class_, pending.seq); /* its thread may never come back */
  pending.put_off = false;
  if (!wait_unless_interrupted(pending.seq, interrupts)) return false;
  return cp_grow_settle();
}

static bool ask_and_wait(uint32_t class_, size_t total, bool optional, uint32_t interrupts) {
  uint32_t seq = goes_on(class_, total) ? pending.seq : ask(class_, total, optional);
  bool answered = wait_unless_interrupted(seq, interrupts);
  pending.put_off = !answered && !optional && cp_load(&cp.interrupts) == interrupts;
  if (!answered && !optional && !pending.put_off) withdraw(class_, seq);
  pending.seq = answered ? 0 : seq;
  pending.class_ = class_;
  pending.total = total;
  pending.optional = optional;
  return answered && cp_load(&cp.seat->grow_status) == CP_GROW_GRANTED;
}

void cp_grow_ask(uint32_t class_, size_t total) {
  pending.seq = ask(class_, total, true);
  pending.class_ = class_;
  pending.optional = true;
  pending.put_off = false;
}

/* Grow lock held, all settled.  Does not wait: the answer is looked for later. */
void cp_promote_ask(size_t total) { cp.promote_seq = ask(0, total, true); }

/* Grow lock held.  False: handlers are to run before this goes on. */
static bool try_to_grow(uint32_t class_, size_t total, bool optional, uint32_t interrupts) {
  cp_promote_answer(true);
  size_t *cap = class_ == 1 ? &cp.e_cap : &cp.p_cap;
  bool settled = goes_on(class_, total) || settle_other(class_, interrupts);
  if (settled && *cap < total && ask_and_wait(class_, total, optional, interrupts)) {
    take_limits();
    if (cp.backend->take) cp.backend->take();
    /* Its memory may have been moved out meanwhile, and the limits with it: what was granted is back before its turn. */
    if (*cap < total) *cap = total;
  }
  return *cap >= total || !pending.seq || !cp_section_deferred() || cp_load(&cp.interrupts) != interrupts;
}

/* SIGINT does not end the wait: where the answer were not seen, limits would count extents that are not granted any more. */
bool cp_grow_packed(size_t total) {
  cp_promote_answer(true);
  if (!cp_grow_settle()) {
    if (pending.put_off) withdraw(pending.class_, pending.seq);
    wait_answer(pending.seq);
    cp_grow_settle();
  }
  wait_answer(ask_for(0, total, PACKS));
  if (cp_load(&cp.seat->grow_status) != CP_GROW_GRANTED) return false;
  take_limits();
  if (cp.p_cap < total) cp_store(&cp.p_cap, total); /* as in try_to_grow */
  return true;
}

static bool is_granted(uint32_t class_, size_t total) { return (class_ == 1 ? cp.e_cap : cp.p_cap) >= total; }

bool cp_grow(uint32_t class_, size_t total, bool optional) {
  bool done = false, enough = false;
  for (uint32_t interrupts = cp_load(&cp.interrupts); !done;) {
    cp_acquire(&cp.grow_lock);
    bool too_late = class_ == 1 && cp.packed; /* another thread has packed the arenas meanwhile: nothing is ephemeral now */
    done = !cp_active() /* the seat has just gone */ || too_late || try_to_grow(class_, total, optional, interrupts);
    enough = cp_active() && is_granted(class_, total);
    cp_release(&cp.grow_lock); /* handlers run here */
  }
  return enough;
}
