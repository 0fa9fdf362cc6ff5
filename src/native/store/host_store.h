/* Folder store/: the copy of a job's persistent content in host memory while another job uses the device: offload, and
 * restore in the order in which chunks are used.  What reads or writes that copy enters.
 * May include: abi, base. */
/* The host store: where the persistent content of this job lies while another job uses its device buffer (see
 * abi/seat.h).
 *
 * Content is moved in chunks.  A chunk's state byte says where its content is; it lies in the store's file, so that it
 * survives this process and can be written by the job's shim while the process is stopped.  Chunks are numbered over
 * all windows.  The caller holds the gate lock and the mover's lock. */
#ifndef CARPOOL_HOST_H
#define CARPOOL_HOST_H
#include "base/common.h"
#include "abi/seat.h"

#define CP_CHUNK_PAGES (CP_CHUNK / CP_PAGE)
#define CP_PAGE_WORDS (CP_CHUNK_PAGES / 64)

/* One bit per page of a chunk: what the store holds of it. */
struct cp_pages {
  uint64_t word[CP_PAGE_WORDS];
};

struct cp_span {
  uint16_t from, to;
};

struct cp_host {
  size_t chunks; /* in all windows; 0: there is no store */
  int fd;        /* the store (owned) */
  int lock_fd;   /* a description of its own, for the mover's lock */
  int tables_fd; /* /proc/self/pagemap, -1: not readable */
  char *memory;
  uint8_t *state;         /* CP_IN_DEVICE or CP_IN_STORE */
  uint8_t *shut;          /* 1: the chunk stays closed when its window is opened */
  struct cp_pages *saved; /* empty for chunks that are in the device */
  struct cp_pages *zero;  /* pages of chunks in the store that are zero, and are not saved */
  struct cp_span *room;   /* the pages of each chunk whose memory the store has */
  size_t shut_chunks;     /* how many are shut */
  uint64_t stored;        /* bytes in the store */
};

void *cp_zeroed(size_t bytes); /* memory that is there once it is written; NULL: no address space */

/* All return 0, or -1 with errno, unless said otherwise. */
int cp_host_init(struct cp_host *h, size_t span, int fd);
void cp_host_end(struct cp_host *h); /* nothing is in it, and nobody moves anything */
void cp_host_lock(struct cp_host *h);
void cp_host_unlock(struct cp_host *h);
void cp_host_abandon(struct cp_host *h); /* in a forked child */

static inline bool cp_host_has(const struct cp_host *h, size_t chunk) {
  return h->chunks && __atomic_load_n(&h->state[chunk], __ATOMIC_ACQUIRE) == CP_IN_STORE;
}
/* The first chunk from here on that is in the store; h->chunks: none. */
size_t cp_host_next(const struct cp_host *h, size_t chunk);
/* Note pages that are to be saved, by their numbers in the chunk. */
void cp_host_mark(struct cp_host *h, size_t chunk, size_t from, size_t to);
/* Forget what was noted for a chunk that is in the device. */
void cp_host_unmark(struct cp_host *h, size_t chunk);
static inline bool cp_host_marked(const struct cp_host *h, size_t chunk) {
  uint64_t any = 0;
  for (size_t i = 0; i < CP_PAGE_WORDS; i++) any |= h->saved[chunk].word[i];
  return any != 0;
}
/* Is there a chunk in the store that was saved from outside, and not learned yet? */
bool cp_host_taken(const struct cp_host *h);
/* The next run of noted pages at or after page *from; false: there is none. */
bool cp_host_run(const struct cp_host *h, size_t chunk, size_t *from, size_t *to);
uint64_t cp_host_bytes(const struct cp_host *h, size_t chunk);

/* Make sure of the memory for the pages noted. */
int cp_host_reserve(struct cp_host *h, size_t chunk);
/* Before that: pages that are zero need neither memory nor copies.  `fd`: the file of device buffers, where the chunk lies
 * as in the store; pages that it lacks are not even read.  One page stays noted: that is how a chunk that was saved by
 * this process is told from one that was saved from outside. */
void cp_host_leave_zeros(struct cp_host *h, size_t chunk, const char *at, int fd);
/* Copy the noted pages of a chunk that lies at `at`; the state byte follows the copy. */
void cp_host_save(struct cp_host *h, size_t chunk, const char *at);
void cp_host_restore(struct cp_host *h, size_t chunk, char *at);
/* A chunk that was saved from outside: what the store has is what was saved. */
void cp_host_learn(struct cp_host *h, size_t chunk);
/* Give back the memory of a chunk that is in the device, or (when nothing is stored) of all. */
void cp_host_drop(struct cp_host *h, size_t chunk);
void cp_host_drop_all(struct cp_host *h);
/* Memory that the store has, in bytes. */
uint64_t cp_host_memory(const struct cp_host *h);
#endif
