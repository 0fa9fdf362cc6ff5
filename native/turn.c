/* Turns: the trap, the grant, the revoke, the hand-over to the next job, requests for memory. */
#include "process.h"

#include <sched.h>
#include <string.h>
#include <sys/socket.h>

#define SHORT_REVOKE_US 50
#define SHORT_REVOKE_BYTES (128 * CP_KIB) /* residue that is saved in less than that */

struct cp_process cp = {.fd = -1};
uint64_t cp_syscalls;
const char *cp_failure = "";

/* Raw system calls: the library interposes send() and friends itself. */
void cp_send(uint32_t type, uint64_t a, uint64_t b, uint64_t c, uint64_t d) {
  struct cp_packet p = {.type = type, .pid = cp.seat ? cp.seat->pid : 0, .a = a, .b = b, .c = c, .d = d};
  long n;
  do {
    cp_add(&cp_syscalls, 1);
    n = syscall(SYS_sendto, cp.fd, &p, sizeof p, MSG_NOSIGNAL, NULL, 0);
  } while (n < 0 && errno == EINTR);
}

void cp_ring(struct cp_seat *seat) {
  cp_add(&seat->bell, 1);
  cp_futex_wake(&seat->bell);
}

/* The job has been moved: its new lane waits in the job channel.  Gate lock held, gate closed. */
static void take_lane(void) {
  struct cp_packet p;
  union {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(sizeof(int))];
  } control;
  struct iovec v = {.iov_base = &p, .iov_len = sizeof p};
  while (cp_load(&cp.seat->lane) != cp.lane) {
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    cp_add(&cp_syscalls, 1);
    long n = syscall(SYS_recvmsg, cp.fd, &m, MSG_CMSG_CLOEXEC);
    if (n < 0 && errno == EINTR) continue;
    struct cmsghdr *c = n == (long)sizeof p && p.type == CP_LANE ? CMSG_FIRSTHDR(&m) : NULL;
    if (!c || c->cmsg_type != SCM_RIGHTS) return;
    int fd, old = cp.arenas.lane_fd;
    memcpy(&fd, CMSG_DATA(c), sizeof fd);
    if (cp_arenas_set_lane(&cp.arenas, fd)) return;
    syscall(SYS_close, old);
    cp.lane = p.a;
  }
}

/* ---- grant --------------------------------------------------------------------------------------------------------- */

/* Gate lock held, turn held.  Restore through the parking range, then open in one step. */
static void open_gate(void) {
  struct cp_seat *s = cp.seat;
  uint64_t begin = cp_now_us();
  bool fresh = cp.gate == CP_CLOSED;
  if (fresh) {
    take_lane();
    if (s->offloaded) {
      cp_arenas_reload(&cp.arenas);
      cp_store(&s->offloaded, 0);
    }
    cp_arenas_restore_residue(&cp.arenas);
    cp_put(&s->turns, s->turns + 1);
    cp_put(&s->want, CP_WANT_NO);
    if (!s->first_use_us) cp_put(&s->first_use_us, begin);
    cp_store(&cp.urgent_us, 0);
    cp_store(&s->coming, 0);
  }
  if (cp_arenas_open(&cp.arenas)) return; /* out of mappings: the touch traps again and tries again */
  cp_store(&cp.gate, CP_OPEN);
  if (!fresh) return;
  uint64_t cost = cp_now_us() - begin + cp.close_us;
  cp_put(&s->switch_us, (uint32_t)(s->switch_us ? (3 * (uint64_t)s->switch_us + cost) / 4 : cost));
}

/* A signal that came shortly before the trap may still wait for the interpreter, which waits for us. */
static bool urgent(void) {
  uint64_t at = cp_load(&cp.urgent_us);
  return at && cp_now_us() - at < 1000000;
}

/* The predecessor wakes us shortly before it lets go, so that its revoke and our waking up overlap.  It may be on our
 * processor and need it to get there, so we yield instead of spinning (spinning: p90 350 us instead of 60). */
static void wait_for_turn(struct cp_seat *s) {
  cp_futex_wait(&s->turn, 0, -1);
  if (!cp_load(&s->coming)) return;
  for (uint64_t end = cp_now_us() + 2 * SHORT_REVOKE_US; !cp_load(&s->turn) && cp_now_us() < end;) sched_yield();
  cp_store(&s->coming, 0);
}

/* The design leaves the grant to the helper thread.  Here the first thread that sees the turn does it: that saves one
 * wake-up of some 50 microseconds per switch, and needs no lock that a trapped thread can hold. */
void cp_trap(void) {
  struct cp_seat *s = cp.seat;
  cp_add(&s->traps, 1);
  while (cp_load(&cp.gate) != CP_OPEN) {
    cp_acquire(&cp.gate_lock);
    if (cp.gate == CP_OPEN) {
      cp_release(&cp.gate_lock);
      return;
    }
    if (cp_fork_pending()) {
      cp_release(&cp.gate_lock);
      cp_fork_wait();
      continue;
    }
    if (cp_load(&s->turn)) {
      open_gate();
      cp_release(&cp.gate_lock);
      continue;
    }
    uint32_t want = urgent() ? CP_WANT_URGENT : CP_WANT_TURN;
    bool tell = s->want < want;
    if (tell) cp_store(&s->want, want);
    cp_release(&cp.gate_lock);
    if (tell) cp_send(want == CP_WANT_URGENT ? CP_URGENT : CP_WANT, 0, 0, 0, 0);
    wait_for_turn(s);
  }
}

/* ---- revoke -------------------------------------------------------------------------------------------------------- */

/* Both locks held.  Would the bytes that keep outliving boundaries be better off in persistent memory? */
static bool promote_now(uint32_t cause) {
  struct cp_pool *p = &cp.arenas.win[cp.arenas.ephemeral].pool;
  if (cause == CP_BY_FORCE || !cp.promote_granted) return false;
  return cp_arenas_persistent(&cp.arenas) + p->live + p->live / 8 + 64 * CP_PAGE <= cp_load(&cp.seat->p_limit);
}

static int promote(void) {
  int64_t moved = cp_arenas_retire(&cp.arenas);
  cp.promote_granted = false;
  cp.promotions++;
  cp.promote_after = cp.boundary.iterations + (4ull << (cp.promotions < 6 ? cp.promotions : 6));
  if (moved < 0) return cp_arenas_save_residue(&cp.arenas);
  struct cp_seat *s = cp.seat;
  cp.p_cap = s->p_limit;
  cp_put(&s->e_live, s->e_live - (uint64_t)moved);
  cp_put(&s->p_live, s->p_live + (uint64_t)moved);
  cp_put(&s->promoted, s->promoted + (uint64_t)moved);
  for (int i = 0; i < CP_KEYS; i++)
    if (cp.boundary.learned[i] != UINT64_MAX)
      cp.boundary.learned[i] -= cp.boundary.learned[i] < (uint64_t)moved ? cp.boundary.learned[i] : (uint64_t)moved;
  size_t used = cp_arenas_persistent(&cp.arenas);
  cp_put(&s->p_used, used);
  if (used > s->p_peak) cp_put(&s->p_peak, used);
  return 0;
}

/* Both locks held.  False: nothing has changed and the turn stays. */
static bool close_gate(uint32_t cause) {
  struct cp_seat *s = cp.seat;
  if (cp.gate == CP_CLOSED) return true; /* granted, but nobody has touched anything yet */
  uint64_t begin = cp_now_us();
  bool open = cp.gate == CP_OPEN;
  cp_store(&cp.gate, CP_HELD); /* first, so that a thread that traps meanwhile waits for the lock instead of spinning */
  if (open && cp_arenas_close(&cp.arenas)) return false;
  if (promote_now(cause) ? promote() : cp_arenas_save_residue(&cp.arenas)) {
    cp_failure = "no host memory to save residue";
    return false; /* HELD: the next touch opens again */
  }
  cp_store(&cp.gate, CP_CLOSED);
  cp_put(&s->residue, cp.arenas.residue.used);
  cp_put(&s->residue_total, s->residue_total + cp.arenas.residue.used);
  cp.close_us = cp_now_us() - begin;
  return true;
}

static struct cp_seat *seat_at(uint32_t slot) { return (struct cp_seat *)(cp.board + CP_BOARD_HEADER) + slot; }

/* Both locks held. */
static void announce(void) {
  uint32_t next = cp_load(&cp.seat->successor);
  if (!next || next > CP_SEATS || cp.arenas.win[cp.arenas.ephemeral].pool.live > SHORT_REVOKE_BYTES) return;
  struct cp_seat *n = seat_at(next - 1);
  cp_store(&n->coming, 1);
  cp_futex_wake(&n->turn);
}

/* The one read of `successor` decides to whom the turn goes; daemon and peers follow. */
static struct cp_seat *pass_on(uint32_t cause, uint32_t *slot) {
  struct cp_seat *s = cp.seat;
  uint64_t now = cp_now_us();
  cp_put(&s->held_us, s->held_us + (now - cp_load(&s->turn_start_us)));
  cp_put(&s->cause, cause);
  if (cause == CP_BY_EARLY) cp_put(&s->early, s->early + 1);
  if (cause == CP_BY_FORCE) cp_put(&s->forced, s->forced + 1);
  cp_store(&s->yield, CP_YIELD_NO);
  cp_store(&s->turn, 0);
  uint32_t next = cp_load(&s->successor);
  if (next > CP_SEATS || next == cp.slot + 1) next = 0;
  struct cp_seat *n = next ? seat_at(next - 1) : NULL;
  cp_store(&s->successor, 0);
  cp_store(&s->passed_to, next);
  if (n) { /* before the hand-over counts: from then on the daemon may write into the next one's seat */
    *slot = next - 1;
    cp_store(&n->successor, 0);
    cp_store(&n->yield, CP_YIELD_NO);
    cp_store(&n->turn_start_us, now);
  }
  cp_store(&s->passed_seq, s->passed_seq + 1); /* from here on it counts, even if this process dies */
  if (n) cp_store(&n->turn, 1);
  return n;
}

void cp_turn_end(uint32_t cause) {
  if (!cp_active()) return;
  cp_acquire(&cp.pool_lock);
  cp_acquire(&cp.gate_lock);
  if (cp_load(&cp.seat->turn) && cp_fork_pending()) cp_fork_settle();
  bool held = cp_load(&cp.seat->turn);
  if (held && cp.gate == CP_OPEN) announce();
  bool ended = held && close_gate(cause);
  struct cp_seat *next = NULL;
  uint32_t slot = 0;
  uint64_t seq = 0;
  if (ended) {
    cp_boundary_yielded(&cp.boundary);
    cp.yield_seen_us = cp.probe_us = 0;
    next = pass_on(cause, &slot);
    seq = cp.seat->passed_seq;
  }
  bool look = ended && cp_promote_due();
  cp_release(&cp.gate_lock);
  cp_release(&cp.pool_lock);
  if (!ended) return;
  if (next) cp_futex_wake(&next->turn);
  cp_send(next ? CP_PASSED : CP_RELEASED, cause, next ? slot : seq, seq, 0);
  if (look) cp_ring(cp.seat);
}

/* ---- memory -------------------------------------------------------------------------------------------------------- */

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

bool cp_grow(uint32_t class_, size_t total) {
  cp_acquire(&cp.grow_lock);
  cp_promote_answer(true);
  size_t *cap = class_ ? &cp.e_cap : &cp.p_cap;
  if (*cap < total && wait_answer(ask(class_, total, false), true) && cp_load(&cp.seat->grow_status) == CP_GROW_GRANTED)
    take_limits();
  bool enough = *cap >= total;
  cp_release(&cp.grow_lock);
  return enough;
}
