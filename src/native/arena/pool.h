/* Block allocator over a range of virtual addresses that it never touches: all its records lie elsewhere, because
 * the range may be closed at any time.  Two-level segregated fit (Masmano et al., "TLSF: a new dynamic memory
 * allocator for real-time systems", ECRTS 2004) with a wilderness at the top, which keeps the extent small: the
 * extent is what a lane has to back.  Not thread-safe; the caller holds a lock. */
#ifndef CARPOOL_POOL_H
#define CARPOOL_POOL_H
#include "base/common.h"

#define CP_GRAIN ((size_t)256) /* block sizes and addresses are multiples of this */
#define CP_FL 40
#define CP_SL 32

struct cp_block {
  uint32_t start, size;          /* grains */
  uint32_t prev, next;           /* neighbours by address, 0: none */
  uint32_t free_prev, free_next; /* neighbours in the free list */
  uint32_t stamp;                /* iteration in which it was allocated */
  uint32_t used;
};

struct cp_pool {
  char *base;
  size_t window;          /* bytes of address space */
  struct cp_block *block; /* records; index 0 is unused */
  uint32_t *at;           /* grain -> index of the block that starts there */
  uint32_t records, spare, last;
  uint32_t top;  /* grains: everything from here up is untouched wilderness */
  uint32_t high; /* grains: largest top so far */
  uint64_t live; /* bytes in used blocks */
  uint64_t blocks;
  uint64_t fl_map;
  uint32_t sl_map[CP_FL];
  uint32_t list[CP_FL][CP_SL];
};

/* Returns 0, or -1 with errno.  window: bytes, a multiple of CP_GRAIN, at most 2^40. */
int cp_pool_init(struct cp_pool *p, char *base, size_t window);
void cp_pool_destroy(struct cp_pool *p);
/* limit: bytes that the pool's extent may reach.  NULL: does not fit below limit; *need is the extent that would do. */
void *cp_pool_alloc(struct cp_pool *p, size_t bytes, size_t limit, uint32_t stamp, size_t *need);
/* Returns the block's size in bytes, 0 if no block starts at address. */
size_t cp_pool_free(struct cp_pool *p, void *address);
size_t cp_pool_size(const struct cp_pool *p, const void *address);

static inline size_t cp_pool_extent(const struct cp_pool *p) { return (size_t)p->top * CP_GRAIN; }
static inline uint32_t cp_pool_first(const struct cp_pool *p) { return p->top ? p->at[0] : 0; } /* by address */
static inline size_t cp_pool_high(const struct cp_pool *p) { return (size_t)p->high * CP_GRAIN; }
/* Checks every invariant; returns 0 or the line of the check that failed (for tests). */
int cp_pool_check(const struct cp_pool *p);
#endif
