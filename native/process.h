/* The state of one attached job process, and what the parts of libcarpool ask of each other. */
#ifndef CARPOOL_PROCESS_H
#define CARPOOL_PROCESS_H
#include "arena.h"
#include "boundary.h"
#include "common.h"
#include "seat.h"

/* The gate.  CLOSED: the turn is not held, ephemeral content is saved.  HELD: closed although the turn is held and
 * the content is in place (a probe for device use, or a fork).  OPEN: the job may touch its memory. */
enum { CP_CLOSED = 0, CP_HELD = 1, CP_OPEN = 2 };
enum { CP_BY_BOUNDARY = 1, CP_BY_EARLY = 2, CP_BY_FORCE = 3, CP_BY_EXIT = 4 };

struct cp_process {
  uint32_t attached; /* set last, cleared never */
  uint32_t child;    /* a forked child: no seat, no turns */
  int fd;            /* job channel */
  uint32_t slot;
  uint64_t lane;
  char *board;
  struct cp_seat *seat;
  size_t capacity; /* of the device, bytes */
  struct cp_arenas arenas;

  /* Order of locks: grow, pool, gate.  No holder ever touches arena memory. */
  struct cp_lock grow_lock, pool_lock, gate_lock;
  uint32_t gate;
  size_t p_cap, e_cap; /* limits this process has seen; never above the seat's */
  uint32_t route_persistent;
  struct cp_boundary boundary;
  uint64_t urgent_us;  /* when SIGINT or SIGTERM arrived, 0: a turn has followed */
  uint32_t interrupts; /* SIGINTs so far */
  uint64_t close_us; /* cost of the last revoke, to be added to the grant's */

  /* helper thread */
  uint64_t yield_seen_us, probe_us;

  /* promotion of residue */
  uint32_t promote_seq;    /* outstanding request, 0: none */
  bool promote_granted;
  uint64_t promote_after;  /* not before this iteration */
  uint64_t looked_at;      /* iteration of the latest look at what survives */
  uint32_t sticky[16], sticky_count; /* sizes in grains whose blocks go to persistent memory at once */
  uint64_t sticky_filter;
  uint32_t promotions;
  size_t retired_freed;    /* bytes freed in retired windows since the last trim */

  uint64_t allocs, frees;
  uint32_t text_count;
  struct {
    uintptr_t lo, hi;
  } text[4]; /* code of libc10: the only caller whose memory is device memory */
};
extern struct cp_process cp;

static inline bool cp_active(void) { return CP_LIKELY(cp.attached) && CP_LIKELY(!cp.child); }

/* turn.c */
void cp_trap(void);                /* called in a signal handler; returns when the memory may be touched */
void cp_turn_end(uint32_t cause);  /* never called in a signal handler; nothing happens without a turn */
bool cp_grow(uint32_t class_, size_t total);
void cp_promote_ask(size_t total);
void cp_promote_answer(bool wait);
void cp_send(uint32_t type, uint64_t a, uint64_t b, uint64_t c, uint64_t d);
void cp_ring(struct cp_seat *seat);
/* promote.c: what keeps outliving boundaries belongs into persistent memory */
void cp_promote_consider(void);
bool cp_promote_due(void); /* is a look worth waking the helper thread? */
bool cp_sticky(size_t bytes); /* pool lock held: do blocks of this size keep outliving boundaries? */
/* helper.c */
int cp_helper_start(void);
/* memory.c */
void *cp_arena_alloc(size_t bytes);
bool cp_arena_free(void *p);
/* fork.c.  All but cp_child_trap need the gate lock. */
bool cp_fork_pending(void);
void cp_fork_wait(void);          /* in a trap: sleep until the snapshot of pending children is settled */
bool cp_fork_wanted(void);        /* somebody waits for that */
void cp_fork_settle(void);        /* take the snapshot unless every pending child has gone on to exec or exit */
void cp_child_trap(void);
/* signals.c */
int cp_signals_start(void);
extern const char *cp_failure;
#endif
