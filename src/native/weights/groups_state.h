/* One process's view of the groups of a model; for groups.c and trap.c. */
#ifndef CARPOOL_GROUPS_STATE_H
#define CARPOOL_GROUPS_STATE_H
#include "weights/groups.h"

#include <pthread.h>
#include <string.h>

/* Of a load.  ENDED: all is there, or it was stopped, or it failed; the thread is to be joined. */
enum { CP_GROUPS_IDLE = 0, CP_GROUPS_BUSY = 1, CP_GROUPS_ENDED = 2 };

/* How groups come to a kind of device.  All but `open` and `close` are called by the thread that brings them. */
struct cp_carrier {
  int (*open)(struct cp_groups *g); /* header and image are mapped.  0, or an errno */
  void (*close)(struct cp_groups *g);
  void (*give)(struct cp_groups *g, uint32_t k, bool access); /* for this process to read; NULL: it always may */
  /* NULL: `finish` does it all.  Otherwise groups are started one after another, and finished in the same order. */
  bool (*start)(struct cp_groups *g, uint32_t k);
  bool (*finish)(struct cp_groups *g, uint32_t k); /* returns when the group is there.  Both: false, it failed */
  bool (*ready)(struct cp_groups *g); /* NULL, or: the thread begins; is there memory to bring them to? */
  /* Where memory is in files alone.  `change`: the file is another one.  Access lock held: `remap`: that is mapped now, and
   * nothing can be read; `forget`: nobody reads for a while. */
  void (*change)(struct cp_groups *g);
  void (*remap)(struct cp_groups *g);
  void (*forget)(struct cp_groups *g);
};

struct cp_groups {
  const struct cp_carrier *carrier;
  void *carriage; /* the carrier's own */
  char *at;         /* the weights' memory, as it is computed with */
  char *to;         /* the same as it is written, NULL: only by calls */
  const char *from; /* the image */
  struct cp_groups_header *header; /* up to bounds[0] */
  uint64_t *bounds;
  uint8_t *open; /* this process may read the group; if they are started: it has been */
  struct cp_lock access; /* of the mapping; taken in the trap, and no holder touches weights */
  size_t bytes;
  uint32_t count;
  uint8_t key[CP_GROUPS_KEY];
  int device;    /* the weights' memory, as it is written */
  char path[32]; /* for descriptions of our own, whose locks others' do not share */
  pthread_t thread;
  uint32_t busy, stop;
  struct cp_lock transfers; /* who begins or ends one */
  uint32_t barred; /* also touches of what is there wait, until the next load */
  uint32_t moved;  /* header and device are another file's, the mapping is not yet */
  uint32_t dropped; /* by others; nothing of the mapping has been given up yet */
  uint32_t due;    /* barred in the middle of their use: all has to be there before that goes on */
  uint32_t load; /* number of the latest one; no other has it, of these groups or of any in this process */
  uint64_t touches, waited_us;
};

static inline bool cp_groups_has(const struct cp_groups *g, uint32_t k) {
  return cp_load(&g->header->state[k]) == CP_GROUP_THERE;
}

static inline long cp_write_at(int fd, const void *from, size_t bytes, uint64_t at) {
  cp_add(&cp_syscalls, 1);
  return syscall(SYS_pwrite64, fd, from, bytes, at);
}

static inline long cp_copy_at(char *to, const char *from, size_t bytes, uint64_t at) {
  memcpy(to + at, from, bytes);
  return (long)bytes;
}

/* service.c.  The turn that they were loaded for has been lost, and has not come back yet */
bool cp_service_lost(void);
void cp_service_take(void); /* it is asked for again, and has come when this returns */
/* groups.c.  Let this process read the group, which is there */
void cp_groups_admit(struct cp_groups *g, uint32_t k);
/* Until the sequence is another, or the time is over (negative: never). */
void cp_groups_sleep(struct cp_groups *g, uint32_t sequence, int64_t timeout_us);
int cp_groups_bring(struct cp_groups *g); /* cp_groups_load, in the middle of the groups' use */
int cp_groups_await(struct cp_groups *g, uint32_t n); /* cp_groups_wait, also if they are due */
/* Nothing can be read here until the next load. */
void cp_groups_close_all(struct cp_groups *g);
void cp_groups_let_go(struct cp_groups *g); /* if they are dropped */
void cp_groups_wake(struct cp_groups *g); /* all that wait for a group look again */
void *cp_groups_map(int fd, size_t bytes, int access, int kind); /* mmap(), with NULL instead of MAP_FAILED */
/* As cp_groups_open.  at: where the groups are to come, if that is known. */
struct cp_groups *cp_groups_make(const struct cp_carrier *carrier, char *at, int device, int image,
                                 const uint64_t *bounds, uint32_t count, const uint8_t *key);
/* trap.c: from now on, or no longer, touches of these groups wait.  0, or EMFILE. */
int cp_groups_enlist(struct cp_groups *g);
void cp_groups_delist(const struct cp_groups *g);
#endif
