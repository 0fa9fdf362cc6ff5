/* The state of one attached job process, and what the parts of libcarpool ask of each other. */
#ifndef CARPOOL_PROCESS_H
#define CARPOOL_PROCESS_H
#include "arena/arena.h"
#include "turn/boundary.h"
#include "base/common.h"
#include "store/access_order.h"
#include "abi/seat.h"

/* The gate.  CLOSED: the turn is not held, ephemeral content is saved.  HELD: closed although the turn is held and
 * the content is in place (a probe for device use, or a fork).  OPEN: the job may touch its memory, but for chunks that
 * are shut because they are still in the host store, or because the order of their use is being learned.
 * While the gate is not CLOSED the process holds the mover's lock of its store. */
enum { CP_CLOSED = 0, CP_HELD = 1, CP_OPEN = 2 };
enum { CP_BY_BOUNDARY = 1, CP_BY_EARLY = 2, CP_BY_FORCE = 3, CP_BY_EXIT = 4 };

/* What differs between devices.  Only `open`, `close`, `shut`, `attach` and `weights` are never NULL. */
struct cp_backend {
  /* Attaching.  Called without locks of the process's own. */
  int files;               /* how many descriptors SETUP brings, the seat table's first; 0: any number */
  bool (*loaded)(void);    /* is the device's library in this process?  Loads nothing */
  int (*attach)(const struct cp_packet *setup, const int *files, int count); /* the seat is there, the process is not
                            * attached yet.  Owns all descriptors but the first.  0, or -1 (cp_failure) */
  void (*attached)(void);  /* from now on work needs the turn */
  void (*pending)(void);   /* from now on the first use of the device asks for a seat (cp_claim_seat) */
  /* fork(): called for every backend, whether the process is attached or not. */
  void (*before_fork)(void);
  void (*after_fork)(bool child); /* in the parent, or in the child */
  void (*in_child)(void);         /* last of all: every lock of the child is as it should be */
  /* Turns. */
  void (*open)(const void *address); /* gate lock and turn held: content comes back, use goes on */
  bool (*close)(uint32_t cause);     /* pool and gate lock held; false: nothing has changed, the turn stays */
  void (*ended)(void); /* pool and gate lock held: it is closed, and weights are not under way any more */
  bool (*shut)(void); /* gate lock and turn held, gate HELD or open: HELD from now on; false: try again */
  /* Called without locks, but `take` perhaps under the grow lock.  All but `boundary` and `take` by
   * the helper thread alone. */
  bool (*quiesce)(void);   /* before close: no more use, and what is under way has ended; false: the turn stays */
  int64_t (*watch)(void);  /* looks whether the holder is off the device; returns how long to sleep, in microseconds */
  bool (*boundary)(void);  /* an iteration has ended; true: the turn ends here and the live blocks are wanted */
  void (*trim)(void);      /* without the turn: give back memory that is not used */
  void (*offload)(void);   /* without the turn: what the daemon cannot move itself is to move out; NULL: cp_offload */
  void (*take)(void);      /* packets have come, or something is about to be used that the daemon has sent before */
  bool (*keeps_turn)(void); /* whether the turn cannot end at present, whatever is asked; NULL: it always can */
  bool (*leave)(void);     /* any thread: the turn is to end here, by the helper's hand; true: the live blocks are wanted */
  /* The weights that the daemon has said are there can be used: 0, and the descriptor of their memory (CUDA: of its header)
   * if another has come, else -1; or an errno. */
  int (*weights)(uint64_t key, int *file);
  void (*again)(uint64_t key); /* a turn that was lost in their use is there again: wherever they are now, it goes on there */
};

#define CP_KINDS (CP_KIND_CUDA + 1)
extern const struct cp_backend *const cp_backends[CP_KINDS]; /* by CP_KIND_* */
extern const struct cp_backend cp_host_backend;

struct cp_process {
  const struct cp_backend *backend;
  uint32_t attached; /* set last, cleared when the seat goes to another process of the job */
  uint32_t child;    /* a forked child: no seat, no turns */
  uint32_t pending;  /* not attached, and may ask for a seat when it is about to use its device */
  int fd;            /* job channel */
  uint32_t slot;
  uint64_t lane, buffer;
  uint64_t capacity; /* of the device, in bytes */
  char *seat_table;
  struct cp_seat *seat;
  struct cp_arenas arenas;

  /* Order of locks: grow, pool, gate.  No holder ever touches arena memory. */
  struct cp_lock grow_lock, pool_lock, gate_lock;
  uint32_t gate;
  uint32_t ending; /* futex.  Not 0: the turn is about to end by the helper's hand, nobody may open the gate (CUDA) */
  size_t p_cap, e_cap; /* limits this process has seen; never above the seat's */
  uint32_t route_persistent;
  bool engine; /* a service that knows nothing of turns: all its memory is persistent */
  uint32_t pool_scopes; /* parts of the program that allocate to a pool of their own just now */
  struct cp_boundary boundary;
  uint64_t urgent_us;  /* when SIGINT or SIGTERM arrived, 0: a turn has followed */
  uint32_t interrupts; /* SIGINTs so far */
  uint64_t close_us; /* cost of the last revoke, to be added to the grant's */

  /* helper thread */
  uint64_t yield_seen_us, probe_us, look_us;
  uint64_t pause_us;   /* between two looks at a busy holder */
  uint64_t seen_calls; /* allocations and frees at the last look */

  /* restore */
  struct cp_order order;
  uint32_t demanding;   /* threads that wait for a chunk that is not back */
  uint64_t restored_us; /* when everything was back, 0: not yet */
  bool buffer_new;        /* others may have left pages in it */
  bool moved_out;       /* all content is in the store, and no turn has begun since */

  /* promotion of residue */
  uint32_t promote_seq;    /* outstanding request, 0: none */
  bool promote_granted;
  uint64_t promote_after;  /* not before this iteration */
  uint64_t looked_at;      /* iteration of the latest look at what survives */
  uint32_t sticky[16], sticky_count; /* sizes in grains whose blocks go to persistent memory at once */
  uint64_t sticky_filter;
  uint32_t promotions;
  size_t retired_freed;    /* bytes freed in retired windows since the last trim */

  /* after a refusal (turn/pack.c) */
  uint32_t packing;        /* futex.  1: the gate stays closed until it is known whether the arenas are packed */
  bool packed;             /* pages count, and all are persistent */

  uint64_t allocs, frees;
  uint32_t text_count;
  struct {
    uintptr_t lo, hi;
  } text[4]; /* code of libc10 and ggml: the only callers whose memory is device memory */
};
extern struct cp_process cp;

static inline bool cp_active(void) { return CP_LIKELY(cp.attached) && CP_LIKELY(!cp.child); }

/* turn/turn.c */
void cp_trap(const void *address); /* called in a signal handler; returns when the memory may be touched */
void cp_turn_await(const void *address);
void cp_turn_begins(uint64_t now);
void cp_turn_costs(uint64_t cost);
void cp_turn_end(uint32_t cause);  /* never called in a signal handler; nothing happens without a turn */
void cp_send(uint32_t type, uint64_t a, uint64_t b, uint64_t c, uint64_t d);
void cp_notify(struct cp_seat *seat);
void cp_lower_limits(void); /* to what the seat says */
/* channel.c.  One reader at a time */
_Noreturn void cp_give_up(const char *why);
/* Looks at the next packet, which stays; fd: a descriptor of ours for the file that comes with it, -1: there is none.
 * False: no packet is there (without `wait`).  With `wait` the process is given up if none can come. */
bool cp_peek(struct cp_packet *p, int *fd, bool wait);
/* Tries until there is a descriptor; meanwhile *instead is closed, unless it is NULL. */
int cp_insist(struct cp_packet *p, int *instead);
void cp_skip_packet(void);
/* As cp_futex_wait, for a word that the daemon writes or lets others write.  The process is given up if the channel has ended,
 * for then nobody will.  May return at any time: the caller looks again. */
void cp_await_daemon(uint32_t *word, uint32_t expected);
void cp_close_fd(int *fd);
/* job/lane_change.c: map the lane and the device buffer that the seat names, or abort.  Gate lock held, gate closed */
void cp_take_files(void);
int cp_host_attach(const struct cp_packet *setup, const int *files, int count); /* as the backend's `attach` */
int cp_take_weights(uint64_t key, int *file); /* as the backend's `weights`; and `again` */
void cp_weights_again(uint64_t key);
void cp_weights_news(void); /* as the backend's `take` */
/* weights/service.c.  want: a demand whose turn was over too early is made again; returns its number, 0: there is none */
uint32_t cp_service_wants(void);
void cp_service_revoked(void); /* the turn is about to end, by whatever cause; arenas closed */
void cp_service_again(void);   /* helper thread: a turn has been granted, or a demand answered */
bool cp_service_answered(void); /* false: the turn that is there is for an earlier demand */
/* turn/grow.c.  class_ 2: a share (CUDA).  optional: may be denied at once, but is answered at once */
bool cp_grow(uint32_t class_, size_t total, bool optional);
/* The next two with the grow lock.  Takes what a request has brought for which nobody has waited (SIGINT).  False: its answer
 * is due, and until then the job gives nothing back, or it could not tell what is still granted. */
bool cp_grow_settle(void);
void cp_grow_ask(uint32_t class_, size_t total); /* optional, does not wait.  Only when all is settled */
void cp_promote_ask(size_t total); /* the same */
void cp_promote_answer(bool wait);
void cp_grow_forget(void); /* in a forked child */
/* Grow lock held.  Asks for `total` persistent bytes instead of all limits, and waits; false: refused, and nothing has changed. */
bool cp_grow_packed(size_t total);
/* turn/pack.c: a job on the host device has been refused memory.  No locks held.  True: its arenas are packed from now on */
bool cp_pack(size_t more);
void cp_pack_settle(void); /* packed: wait for the turn, and for what is still in the host store */
void cp_refused(size_t bytes); /* say so on stderr */
/* store/restore.c.  The first three need the gate lock */
bool cp_is_out(void); /* is all content in the store, and the device buffer perhaps another job's? */
size_t cp_restore_begin(void); /* arenas closed, turn held.  Returns how many chunks are in the store */
void cp_restore_touch(const void *address, bool first);
int64_t cp_restore_step(void); /* helper thread.  Returns how long to sleep: 0 there is more to do, -1 nothing is */
/* store/offload.c: helper thread */
void cp_offload(void);
void cp_offload_drop(void);
/* arena/promote.c: what keeps outliving boundaries belongs into persistent memory */
void cp_promote_consider(void);
bool cp_promote_due(void); /* is a look worth waking the helper thread? */
bool cp_sticky(size_t bytes); /* pool lock held: do blocks of this size keep outliving boundaries? */
/* turn/pause.c */
bool cp_pause_waited(void);
bool cp_pause(void);
void cp_pause_over(void);
/* job/helper.c.  The latter two for a holder that is being watched: how long to wait, in microseconds */
#define CP_RETRY_US 10000 /* the turn could not be ended */
int cp_helper_start(void);
extern __thread bool cp_is_helper __attribute__((tls_model("initial-exec")));
uint64_t cp_busy_pause(uint64_t grace);
int64_t cp_look_again(uint64_t calls, uint64_t now, uint64_t pause_us);
/* job/attach.c: 0 attached, CP_PLAIN, or -1 (cp_failure).  Blocks until the daemon answers.  uses: it is about to */
enum { CP_PLAIN = 1, CP_LATER = 2 };
int cp_hello(int fd, bool uses);
bool cp_find_text(void); /* of libc10 and ggml; false: neither is loaded */
bool cp_find_ggml(void); /* the same; false: ggml is not loaded */
/* job/seat_handoff.c: the seat goes to the process that uses its device */
int cp_first_hello(int fd); /* as cp_hello, or CP_LATER: this process is pending now */
bool cp_claim_seat(void); /* a pending process is about to; true: it is attached now.  Holds no other lock of ours */
bool cp_leave_seat(void); /* helper thread: the daemon has asked; true: the seat is another's now, and the thread is to end */
/* This process is pending from now on, and its gate is shut, unless it is or has more; clears ``may``.  The runtime may
 * still come (PyTorch, imported later): cp_first_hello answers it. */
void cp_handoff_begin(uint32_t *may, void (*shut)(void));
bool cp_channel_is_there(void); /* the program may have closed it, and opened something else under its number */
void cp_handoff_forked(void); /* in the child: the channel is its parent's */
void cp_handoff_leave_channel(void); /* the child lets go of it */
/* job/self_attach.c: programs without Python */
extern uint32_t cp_looks; /* this process is to be pending once a library is mapped whose memory is the device's */
extern size_t cp_least_claim; /* bytes of the smallest allocation with which a pending process attaches */
void cp_look_for_library(void);
void cp_look_in_child(void); /* of fork(), whose parent had no seat */
bool cp_attaches_itself(void); /* as a process of a job, without a word of the runtime */
/* job/attach_socket.c: connects to the job's attach socket.  A job channel of this process's own, or -1 */
int cp_attach_socket(void);
/* job/join.c: a process that no shim has started becomes a job, with its first use of the device */
bool cp_joins(void);
int cp_join_now(void); /* its job channel, or -1 (cp_failure).  Waits for the daemon's answer, but not for a place */
void cp_join_seated(bool seated); /* the wait is over; without a seat the process goes on without */
bool cp_join_interrupted(void); /* by SIGINT, while it waits */
bool cp_join_readable(int fd); /* waits for something to read, or the end; false: it was interrupted */
void cp_join_before_fork(void);
void cp_join_after_fork(bool child); /* the child keeps nothing, and joins nothing */
/* job/malloc_hooks.c */
void *cp_arena_alloc(size_t bytes);
bool cp_arena_free(void *p);
/* job/fork.c.  All but cp_child_trap need the gate lock. */
bool cp_fork_pending(void);
void cp_fork_wait(void);          /* in a trap: sleep until the snapshot of pending children is settled */
void cp_fork_answer(void);        /* settle the snapshot if a thread or a child waits for that */
void cp_fork_settle(void);        /* take the snapshot unless every pending child has gone on to exec or exit */
void cp_child_trap(void);
/* job/signals.c */
int cp_signals_start(void);
void cp_signals_forked(void); /* in the child */
extern const char *cp_failure;
#endif
