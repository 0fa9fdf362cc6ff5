/* Folder turn/: when the process may use its device: traps, the begin and end of turns, ends of iterations, pauses, and
 * requests for memory.  What decides about time enters; bytes are moved by arena/, store/ and cuda/.
 * May include: base. */
/* Turns: the trap, the grant, the revoke, the hand-over to the next job. */
#include "base/process.h"

#include <sched.h>
#include <sys/socket.h>

#define SHORT_REVOKE_US 50
#define SHORT_REVOKE_BYTES (128 * CP_KIB) /* residue that is saved in less than that */

static void open_arenas(const void *address);
static bool close_arenas(uint32_t cause);
static bool shut_arenas(void);
const struct cp_backend cp_host_backend = {.files = 4, /* seat table, lane, device buffer, store */
                                           .attach = cp_host_attach,
                                           .open = open_arenas,
                                           .close = close_arenas,
                                           .shut = shut_arenas,
                                           .take = cp_weights_news,
                                           .weights = cp_take_weights,
                                           .again = cp_weights_again};

struct cp_process cp = {.fd = -1, .backend = &cp_host_backend};
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

void cp_notify(struct cp_seat *seat) {
  cp_add(&seat->bell, 1);
  cp_futex_wake(&seat->bell);
}

/* ---- grant --------------------------------------------------------------------------------------------------------- */

/* Limits may have been lowered while the turn was away, and given back only in part if another daemon runs since. */
void cp_lower_limits(void) {
  const struct cp_seat *s = cp.seat;
  size_t p = cp_load(&s->p_limit), e = cp_load(&s->e_limit);
  if (cp.p_cap > p) cp_store(&cp.p_cap, p);
  if (cp.e_cap > e) cp_store(&cp.e_cap, e);
}

/* Gate lock held.  The first use of a turn. */
void cp_turn_begins(uint64_t now) {
  struct cp_seat *s = cp.seat;
  cp_put(&s->turns, s->turns + 1);
  cp_put(&s->want, CP_WANT_NO);
  if (!s->first_use_us) cp_put(&s->first_use_us, now);
  cp_store(&cp.urgent_us, 0);
  cp_store(&s->coming, 0);
}

/* cost: of this grant and the revoke before it, in microseconds. */
void cp_turn_costs(uint64_t cost) {
  struct cp_seat *s = cp.seat;
  cp_put(&s->switch_us, (uint32_t)(s->switch_us ? (3 * (uint64_t)s->switch_us + cost) / 4 : cost));
}

/* Restore through the parking range, then open in one step; what is in the host store follows piece by piece, but for
 * the chunk that is about to be touched. */
static void open_arenas(const void *address) {
  struct cp_seat *s = cp.seat;
  uint64_t begin = cp_now_us();
  bool fresh = cp.gate == CP_CLOSED;
  size_t left = 0;
  if (fresh) {
    cp_host_lock(&cp.arenas.host); /* until the gate is closed again */
    cp_take_files();
    cp_lower_limits();
    left = cp_restore_begin();
    if (cp.packed && !cp.arenas.packed && cp_arenas_pack(&cp.arenas)) cp_give_up("its memory cannot be mapped (vm.max_map_count, ulimit -v?)");
    cp_arenas_restore_residue(&cp.arenas);
    cp_turn_begins(begin);
    cp_store(&cp.gate, CP_HELD);
    cp_restore_touch(address, true);
  }
  if (cp_arenas_open(&cp.arenas)) return; /* out of mappings: the touch traps again and tries again */
  cp_store(&cp.gate, CP_OPEN);
  if (!fresh) return;
  if (left) {
    cp_put(&s->resume_us, cp_now_us() - begin);
    cp_notify(s); /* the helper thread brings the rest */
    return;
  }
  cp_turn_costs(cp_now_us() - begin + cp.close_us);
}

/* A signal that came shortly before the trap may still wait for the interpreter, which waits for us. */
static bool urgent(void) {
  uint64_t at = cp_load(&cp.urgent_us);
  return at && cp_now_us() - at < 1000000;
}

/* The predecessor wakes us shortly before it lets go, so that its revoke and our waking up overlap.  It may be on our
 * processor and need it to get there, so we yield instead of spinning (spinning: p90 350 us instead of 60). */
static void wait_for_turn(struct cp_seat *s) {
  cp_await_daemon(&s->turn, 0);
  if (!cp_load(&s->coming)) return;
  for (uint64_t end = cp_now_us() + 2 * SHORT_REVOKE_US; !cp_load(&s->turn) && cp_now_us() < end;) sched_yield();
  cp_store(&s->coming, 0);
}

/* Gate lock held, gate not open; releases the lock.  Open if the turn is there, otherwise ask for it and sleep. */
void cp_turn_await(const void *address) {
  struct cp_seat *s = cp.seat;
  if (cp_fork_pending()) {
    cp_release(&cp.gate_lock);
    cp_fork_wait();
    return;
  }
  if (cp_load(&cp.packing)) {
    cp_release(&cp.gate_lock);
    cp_futex_wait(&cp.packing, 1, -1);
    return;
  }
  if (cp_load(&s->turn)) {
    if (cp_pause_waited()) return;
    cp.backend->open(address);
    cp_release(&cp.gate_lock);
    return;
  }
  uint32_t want = urgent() ? CP_WANT_URGENT : CP_WANT_TURN;
  bool tell = s->want < want;
  if (tell) cp_store(&s->want, want);
  uint32_t demand = tell ? cp_service_wants() : 0;
  cp_section_begin(); /* a handler that waits for this turn relies on its having been asked for */
  cp_release(&cp.gate_lock);
  if (tell) cp_send(want == CP_WANT_URGENT ? CP_URGENT : CP_WANT, demand, 0, 0, 0);
  cp_section_end();
  wait_for_turn(s);
}

/* A handler does not come between: it may leave by siglongjmp(). */
static void lock_gate(bool demands) {
  cp_section_begin();
  if (demands) cp_add(&cp.demanding, 1);
  cp_acquire(&cp.gate_lock);
  if (demands) cp_add(&cp.demanding, -1);
  cp_section_end();
}

/* The design leaves the grant to the helper thread.  Here the first thread that sees the turn does it: that saves one
 * wake-up of some 50 microseconds per switch, and needs no lock that a trapped thread can hold. */
void cp_trap(const void *address) {
  struct cp_seat *s = cp.seat;
  cp_add(&s->traps, 1);
  for (;;) {
    bool open = cp_load(&cp.gate) == CP_OPEN;
    if (open && !cp_arenas_is_shut(&cp.arenas, cp_arenas_chunk(&cp.arenas, address))) return;
    lock_gate(open);
    if (cp.gate == CP_OPEN) {
      cp_restore_touch(address, false);
      cp_release(&cp.gate_lock);
      return;
    }
    cp_turn_await(address);
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

static void announce(void);

static bool close_arenas(uint32_t cause) {
  struct cp_seat *s = cp.seat;
  if (cp.gate == CP_CLOSED) return true; /* granted, but nobody has touched anything yet */
  if (cp.gate == CP_OPEN) announce();
  uint64_t begin = cp_now_us();
  cp_store(&cp.gate, CP_HELD); /* first, so that a thread that traps meanwhile waits for the lock instead of spinning */
  if (cp.arenas.open && cp_arenas_close(&cp.arenas)) return false;
  if (promote_now(cause) ? promote() : cp_arenas_save_residue(&cp.arenas)) {
    cp_failure = "no host memory to save residue";
    return false; /* HELD: the next touch opens again */
  }
  cp_store(&cp.gate, CP_CLOSED);
  if (cp_load(&s->offloaded)) cp_store(&s->offloaded, 0); /* the daemon has written it for the shim, after our restore */
  cp_host_unlock(&cp.arenas.host);
  cp_put(&s->residue, cp.arenas.residue.used);
  cp_put(&s->residue_total, s->residue_total + cp.arenas.residue.used);
  cp.close_us = cp_now_us() - begin;
  return true;
}

static bool shut_arenas(void) {
  cp_store(&cp.gate, CP_HELD);
  return !cp.arenas.open || !cp_arenas_close(&cp.arenas);
}

static struct cp_seat *seat_at(uint32_t slot) { return (struct cp_seat *)(cp.seat_table + CP_BOARD_HEADER) + slot; }

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
  cp_store(&s->watch, 0);
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
    cp_store(&n->watch, 0);
    cp_store(&n->turn_start_us, now);
  }
  cp_store(&s->passed_seq, s->passed_seq + 1); /* from here on it counts, even if this process dies */
  if (n) cp_store(&n->turn, 1);
  return n;
}

static void end_turn(uint32_t cause) {
  cp_acquire(&cp.pool_lock);
  cp_acquire(&cp.gate_lock);
  if (cp_load(&cp.seat->turn) && cp_fork_pending()) cp_fork_settle();
  bool held = cp_load(&cp.seat->turn);
  bool ended = held && cp.backend->close(cause);
  struct cp_seat *next = NULL;
  uint32_t slot = 0;
  uint64_t seq = 0;
  if (ended) {
    cp_pause_over();
    cp_service_revoked();
    if (cp.backend->ended) cp.backend->ended();
    cp_boundary_yielded(&cp.boundary);
    cp.yield_seen_us = cp.probe_us = 0;
    next = pass_on(cause, &slot);
    seq = cp.seat->passed_seq;
  }
  bool look = ended && (cp_promote_due() || cp_load(&cp.seat->offload) == CP_OFFLOAD_ASKED);
  uint32_t wanted = cp_load(&cp.seat->want); /* not 0: the turn went before anybody could use it, and they still wait */
  uint32_t demand = ended && wanted ? cp_service_wants() : 0;
  cp_release(&cp.gate_lock);
  cp_release(&cp.pool_lock);
  if (!ended) return;
  if (next) cp_futex_wake(&next->turn);
  cp_send(next ? CP_PASSED : CP_RELEASED, cause, next ? slot : seq, seq, 0);
  if (wanted) cp_send(wanted == CP_WANT_URGENT ? CP_URGENT : CP_WANT, demand, 0, 0, 0);
  if (look) cp_notify(cp.seat);
}

/* One section: what a handler waits for, if it touches memory, is to be told by what follows the end. */
void cp_turn_end(uint32_t cause) {
  if (!cp_active()) return;
  if (cp.backend->quiesce && !cp.backend->quiesce()) return;
  cp_section_begin();
  end_turn(cause);
  cp_section_end();
}
