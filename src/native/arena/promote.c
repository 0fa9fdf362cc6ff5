/* Ephemeral blocks that keep outliving boundaries (an EMA of the weights, a cache, gradients that are never freed, a
 * history of old gradients) cost two copies per switch.  In persistent memory they cost their bytes once.
 *
 * Two remedies.  Blocks that stay are moved at the same address: the whole ephemeral window is retired (arena.c).
 * Where blocks of one size come and go but some are alive at every boundary, their successors are placed in persistent
 * memory at once. */
#include "base/process.h"

#define LEAST (256 * CP_KIB) /* residue below this is not worth a look */
#define LEAST_SIZE (64 * CP_KIB)
#define STAYS 3u   /* boundaries that a block must have outlived to be moved */
#define LOOKS_OLD 3 /* looks in a row that must find old blocks of a size */
#define LOOKS_NEW 6 /* or blocks of that size that replace each other in every iteration */
#define SIZES 32

static struct size {
  uint32_t grains, looks, old_looks;
  uint64_t bytes, old_bytes;
} sizes[SIZES];

static uint64_t filter_bit(uint32_t grains) { return 1ull << (grains * 2654435761u >> 26); }

bool cp_sticky(size_t bytes) {
  if (CP_LIKELY(!cp.sticky_count)) return false;
  uint32_t grains = (uint32_t)((bytes + CP_GRAIN - 1) / CP_GRAIN);
  if (!(cp.sticky_filter & filter_bit(grains))) return false;
  for (uint32_t i = 0; i < cp.sticky_count; i++)
    if (cp.sticky[i] == grains) return true;
  return false;
}

static void count_size(uint32_t grains, bool old) {
  struct size *s = NULL;
  for (int i = 0; i < SIZES; i++) {
    if (!sizes[i].grains && !s) s = &sizes[i];
    if (sizes[i].grains != grains) continue;
    s = &sizes[i];
    break;
  }
  if (!s) return;
  if (s->grains != grains) *s = (struct size){.grains = grains};
  s->bytes += (uint64_t)grains * CP_GRAIN;
  s->old_bytes += old ? (uint64_t)grains * CP_GRAIN : 0;
}

static void judge_sizes(void) {
  for (int i = 0; i < SIZES; i++) {
    struct size *s = &sizes[i];
    s->looks = s->bytes >= LEAST ? s->looks + 1 : 0;
    s->old_looks = s->old_bytes >= LEAST_SIZE ? s->old_looks + 1 : 0;
    s->bytes = s->old_bytes = 0;
    if (!s->looks && !s->old_looks) s->grains = 0;
    if (s->looks < LOOKS_NEW && s->old_looks < LOOKS_OLD) continue;
    if (cp.sticky_count == sizeof cp.sticky / sizeof *cp.sticky) continue;
    cp.sticky[cp.sticky_count++] = s->grains;
    cp.sticky_filter |= filter_bit(s->grains);
    *s = (struct size){0};
  }
}

/* Pool lock held.  Bytes of the ephemeral window that have outlived several boundaries. */
static size_t survivors(void) {
  const struct cp_pool *p = &cp.arenas.win[cp.arenas.ephemeral].pool;
  uint64_t now = cp.boundary.iterations;
  /* At a boundary everything alive is residue, also what this iteration's tail has made; elsewhere only what is older. */
  uint32_t age = cp_load(&cp.seat->turn) || cp.seat->cause != CP_BY_BOUNDARY;
  size_t sum = 0;
  for (uint32_t i = p->top ? p->at[0] : 0; i; i = p->block[i].next) {
    const struct cp_block *b = &p->block[i];
    if (!b->used) continue;
    if (b->stamp + STAYS <= now) sum += (size_t)b->size * CP_GRAIN;
    if (b->stamp + age <= now && b->size * CP_GRAIN >= CP_PAGE) count_size(b->size, b->stamp + 2 <= now);
  }
  judge_sizes();
  return sum;
}

bool cp_promote_due(void) {
  return cp.arenas.residue.used >= LEAST && cp.boundary.iterations > cp.looked_at + 1;
}

void cp_promote_consider(void) {
  if (cp_try(&cp.grow_lock)) { /* otherwise a thread is waiting for memory, which matters more */
    cp_promote_answer(false);
    cp_release(&cp.grow_lock);
  }
  if (cp.packed || cp.boundary.iterations <= cp.looked_at + 1) return;
  cp_acquire(&cp.pool_lock);
  cp.looked_at = cp.boundary.iterations;
  uint64_t live = cp.arenas.win[cp.arenas.ephemeral].pool.live;
  size_t old = live >= LEAST ? survivors() : 0;
  size_t total = cp_arenas_persistent(&cp.arenas) + live + live / 4 + 128 * CP_PAGE;
  bool ask = old >= LEAST && old >= live / 4 && cp.boundary.iterations >= cp.promote_after && !cp.promote_granted &&
             !cp.promote_seq && cp.promotions < 100;
  cp_release(&cp.pool_lock);
  if (!ask || !cp_try(&cp.grow_lock)) return;
  cp.promote_after = cp.boundary.iterations + 4;
  if (cp_grow_settle()) cp_promote_ask(cp_round_up(total, CP_PAGE)); /* an answer does not say which request it is for */
  cp_release(&cp.grow_lock);
}
