#include "arena/pool.h"

#include <string.h>
#include <sys/mman.h>

static void *reserve(size_t bytes) {
  void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return p == MAP_FAILED ? NULL : p;
}

/* Size class of a free block of n grains (n >= 1). */
static void class_of(uint32_t n, uint32_t *fl, uint32_t *sl) {
  if (n < CP_SL) {
    *fl = 0;
    *sl = n;
    return;
  }
  uint32_t log = 31u - (uint32_t)__builtin_clz(n);
  *fl = log - 4;
  *sl = (n >> (log - 5)) - CP_SL;
}

/* Smallest class all of whose blocks have at least n grains. */
static void class_for(uint32_t n, uint32_t *fl, uint32_t *sl) {
  if (n >= CP_SL) {
    uint32_t log = 31u - (uint32_t)__builtin_clz(n);
    uint32_t round = (1u << (log - 5)) - 1;
    if (n <= UINT32_MAX - round) n += round;
  }
  class_of(n, fl, sl);
}

static void list_push(struct cp_pool *p, uint32_t i) {
  struct cp_block *b = &p->block[i];
  uint32_t fl, sl;
  class_of(b->size, &fl, &sl);
  b->free_prev = 0;
  b->free_next = p->list[fl][sl];
  if (b->free_next) p->block[b->free_next].free_prev = i;
  p->list[fl][sl] = i;
  p->sl_map[fl] |= 1u << sl;
  p->fl_map |= 1ull << fl;
}

static void list_remove(struct cp_pool *p, uint32_t i) {
  struct cp_block *b = &p->block[i];
  uint32_t fl, sl;
  class_of(b->size, &fl, &sl);
  if (b->free_next) p->block[b->free_next].free_prev = b->free_prev;
  if (b->free_prev) {
    p->block[b->free_prev].free_next = b->free_next;
    return;
  }
  p->list[fl][sl] = b->free_next;
  if (b->free_next) return;
  p->sl_map[fl] &= ~(1u << sl);
  if (!p->sl_map[fl]) p->fl_map &= ~(1ull << fl);
}

static uint32_t record_new(struct cp_pool *p) {
  if (!p->spare) return p->records++;
  uint32_t i = p->spare;
  p->spare = p->block[i].next;
  return i;
}

static void record_drop(struct cp_pool *p, uint32_t i) {
  p->at[p->block[i].start] = 0;
  p->block[i].used = 0;
  p->block[i].next = p->spare;
  p->spare = i;
}

int cp_pool_init(struct cp_pool *p, char *base, size_t window) {
  memset(p, 0, sizeof *p);
  size_t grains = window / CP_GRAIN;
  if (grains >= UINT32_MAX) {
    errno = EINVAL;
    return -1;
  }
  p->base = base;
  p->window = window;
  p->records = 1;
  p->at = reserve((grains + 1) * sizeof *p->at);
  p->block = reserve((grains + 2) * sizeof *p->block);
  if (p->at && p->block) return 0;
  cp_pool_destroy(p);
  errno = ENOMEM;
  return -1;
}

void cp_pool_destroy(struct cp_pool *p) {
  size_t grains = p->window / CP_GRAIN;
  if (p->at) munmap(p->at, (grains + 1) * sizeof *p->at);
  if (p->block) munmap(p->block, (grains + 2) * sizeof *p->block);
  memset(p, 0, sizeof *p);
}

/* A free block of at least n grains, or 0.  Good fit first; then the one class that may or may not hold one. */
static uint32_t find_free(struct cp_pool *p, uint32_t n) {
  uint32_t fl, sl;
  class_for(n, &fl, &sl);
  if (fl < CP_FL) {
    uint32_t map = p->sl_map[fl] & (~0u << sl);
    if (!map) {
      uint64_t up = fl + 1 < 64 ? p->fl_map & (~0ull << (fl + 1)) : 0;
      if (up) {
        fl = (uint32_t)__builtin_ctzll(up);
        map = p->sl_map[fl];
      }
    }
    if (map) return p->list[fl][__builtin_ctz(map)];
  }
  class_of(n, &fl, &sl);
  int tries = 64;
  for (uint32_t i = p->list[fl][sl]; i && tries--; i = p->block[i].free_next)
    if (p->block[i].size >= n) return i;
  return 0;
}

static void *take(struct cp_pool *p, uint32_t i, uint32_t stamp) {
  struct cp_block *b = &p->block[i];
  b->used = 1;
  b->stamp = stamp;
  p->live += (uint64_t)b->size * CP_GRAIN;
  p->blocks++;
  return p->base + (size_t)b->start * CP_GRAIN;
}

static void split(struct cp_pool *p, uint32_t i, uint32_t n) {
  struct cp_block *b = &p->block[i];
  if (b->size == n) return;
  uint32_t r = record_new(p);
  struct cp_block *rest = &p->block[r];
  *rest = (struct cp_block){.start = b->start + n, .size = b->size - n, .prev = i, .next = b->next};
  if (rest->next)
    p->block[rest->next].prev = r;
  else
    p->last = r;
  b->next = r;
  b->size = n;
  p->at[rest->start] = r;
  list_push(p, r);
}

/* Take n grains at the top; a free block that ends there is used as the lower part. */
static void *take_top(struct cp_pool *p, uint32_t n, size_t limit, uint32_t stamp, size_t *need) {
  uint32_t i = p->last;
  bool join = i && !p->block[i].used; /* never so after a free (it merges into the wilderness), kept for safety */
  uint32_t start = join ? p->block[i].start : p->top;
  size_t extent = ((size_t)start + n) * CP_GRAIN;
  if (extent > limit || extent > p->window) {
    *need = extent;
    return NULL;
  }
  if (join)
    list_remove(p, i);
  else {
    i = record_new(p);
    p->block[i] = (struct cp_block){.start = start, .prev = p->last};
    if (p->last) p->block[p->last].next = i;
    p->last = i;
    p->at[start] = i;
  }
  p->block[i].size = n;
  p->top = start + n;
  if (p->top > p->high) p->high = p->top;
  return take(p, i, stamp);
}

void *cp_pool_alloc(struct cp_pool *p, size_t bytes, size_t limit, uint32_t stamp, size_t *need) {
  if (bytes > p->window) {
    *need = bytes;
    return NULL;
  }
  uint32_t n = (uint32_t)((bytes + CP_GRAIN - 1) / CP_GRAIN);
  if (!n) n = 1;
  uint32_t i = find_free(p, n);
  if (!i) return take_top(p, n, limit, stamp, need);
  list_remove(p, i);
  split(p, i, n);
  return take(p, i, stamp);
}

static uint32_t block_at(const struct cp_pool *p, const void *address) {
  size_t offset = (size_t)((const char *)address - p->base);
  if (offset % CP_GRAIN || offset / CP_GRAIN >= p->top) return 0;
  uint32_t i = p->at[offset / CP_GRAIN];
  return i && p->block[i].used ? i : 0;
}

size_t cp_pool_size(const struct cp_pool *p, const void *address) {
  return (size_t)p->block[block_at(p, address)].size * CP_GRAIN;
}

/* Merge block r into its left neighbour l. */
static void absorb(struct cp_pool *p, uint32_t l, uint32_t r) {
  p->block[l].size += p->block[r].size;
  p->block[l].next = p->block[r].next;
  if (p->block[l].next)
    p->block[p->block[l].next].prev = l;
  else
    p->last = l;
  record_drop(p, r);
}

size_t cp_pool_free(struct cp_pool *p, void *address) {
  uint32_t i = block_at(p, address);
  if (!i) return 0;
  size_t bytes = (size_t)p->block[i].size * CP_GRAIN;
  p->block[i].used = 0;
  p->live -= bytes;
  p->blocks--;
  uint32_t right = p->block[i].next, left = p->block[i].prev;
  if (right && !p->block[right].used) {
    list_remove(p, right);
    absorb(p, i, right);
  }
  if (left && !p->block[left].used) {
    list_remove(p, left);
    absorb(p, left, i);
    i = left;
  }
  if (p->block[i].next) {
    list_push(p, i);
    return bytes;
  }
  p->top = p->block[i].start; /* the highest block: back to the wilderness */
  p->last = p->block[i].prev;
  if (p->last) p->block[p->last].next = 0;
  record_drop(p, i);
  return bytes;
}

#define CHECK(x) \
  if (!(x)) return __LINE__
int cp_pool_check(const struct cp_pool *p) {
  uint64_t live = 0, used = 0, idle = 0;
  uint32_t expect = 0, prev = 0, first = 0;
  for (uint32_t i = p->last; i; i = p->block[i].prev) first = i;
  for (uint32_t i = first; i; prev = i, i = p->block[i].next) {
    const struct cp_block *b = &p->block[i];
    CHECK(b->start == expect && b->size && b->prev == prev && p->at[b->start] == i);
    CHECK(b->used || !prev || p->block[prev].used);
    expect = b->start + b->size;
    if (b->used) {
      live += (uint64_t)b->size * CP_GRAIN;
      used++;
    } else
      idle++;
  }
  CHECK(expect == p->top && prev == p->last && live == p->live && used == p->blocks);
  CHECK(!p->last || p->block[p->last].used);
  uint64_t listed = 0;
  for (uint32_t fl = 0; fl < CP_FL; fl++)
    for (uint32_t sl = 0; sl < CP_SL; sl++) {
      CHECK(!p->list[fl][sl] == !(p->sl_map[fl] & 1u << sl));
      for (uint32_t i = p->list[fl][sl]; i; i = p->block[i].free_next) {
        uint32_t f, s;
        class_of(p->block[i].size, &f, &s);
        CHECK(!p->block[i].used && f == fl && s == sl);
        listed++;
      }
      CHECK(!p->sl_map[fl] == !(p->fl_map & 1ull << fl));
    }
  CHECK(listed == idle);
  return 0;
}
