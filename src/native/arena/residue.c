/* Stores: what is alive in a window, and the bytes of the ephemeral one that are saved at a switch. */
#include "arena/arena.h"
#include "base/core_dump.h"

#include <string.h>
#include <sys/mman.h>

static void *grow_map(void *old, size_t old_bytes, size_t bytes) {
  cp_add(&cp_syscalls, 1);
  void *p = old ? mremap(old, old_bytes, bytes, MREMAP_MAYMOVE)
                : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return p == MAP_FAILED ? NULL : p;
}

void cp_store_clear(struct cp_store *s) { s->runs = s->used = 0; }

static int store_reserve(struct cp_store *s, size_t bytes) {
  if (bytes <= s->capacity) return 0;
  size_t capacity = cp_round_up(bytes + bytes / 2, CP_MIB);
  void *p = grow_map(s->memory, s->capacity, capacity);
  if (!p) return -1;
  cp_leave_out_of_cores(p, capacity);
  s->memory = p;
  s->capacity = capacity;
  return 0;
}

static int store_add(struct cp_store *s, uint32_t window, uint64_t start, uint64_t length) {
  struct cp_run *last = s->runs ? &s->run[s->runs - 1] : NULL;
  if (last && last->window == window && last->start + last->length == start) {
    last->length += length;
    s->used += length;
    return 0;
  }
  if (s->runs == s->run_capacity) {
    size_t capacity = s->run_capacity ? 2 * s->run_capacity : 4096;
    void *p = grow_map(s->run, s->run_capacity * sizeof *s->run, capacity * sizeof *s->run);
    if (!p) return -1;
    s->run = p;
    s->run_capacity = capacity;
  }
  s->run[s->runs++] = (struct cp_run){.window = window, .start = start, .length = length, .saved = s->used};
  s->used += length;
  return 0;
}

int cp_store_collect(struct cp_store *s, const struct cp_arenas *a, uint32_t window) {
  const struct cp_pool *p = &a->win[window].pool;
  for (uint32_t i = cp_pool_first(p); i; i = p->block[i].next) {
    const struct cp_block *b = &p->block[i];
    if (b->used && store_add(s, window, (uint64_t)b->start * CP_GRAIN, (uint64_t)b->size * CP_GRAIN)) return -1;
  }
  return 0;
}

/* The order is the design's: closed first, then copied through the private alias. */
static int store_fill(struct cp_store *s, const struct cp_arenas *a) {
  if (store_reserve(s, s->used)) return -1;
  for (size_t i = 0; i < s->runs; i++)
    memcpy(s->memory + s->run[i].saved, a->win[s->run[i].window].park + s->run[i].start, s->run[i].length);
  return 0;
}

static void store_empty(struct cp_store *s, const struct cp_arenas *a) {
  for (size_t i = 0; i < s->runs; i++)
    memcpy(a->win[s->run[i].window].park + s->run[i].start, s->memory + s->run[i].saved, s->run[i].length);
  cp_store_clear(s);
}

int cp_arenas_save_residue(struct cp_arenas *a) {
  cp_store_clear(&a->residue);
  if (a->packed) return 0;
  if (cp_store_collect(&a->residue, a, a->ephemeral)) return -1;
  return store_fill(&a->residue, a);
}

/* Blocks freed since, or allocated in their place, do not matter: what they hold is undefined until they are written,
 * and writing traps.  So this needs no lock of the allocator. */
void cp_arenas_restore_residue(struct cp_arenas *a) { store_empty(&a->residue, a); }
