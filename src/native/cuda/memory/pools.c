/* The pools behind segments: one per class, over the job's two ranges of addresses; and what the seat says of them. */
#include "cuda/memory/pools.h"

struct cp_pool cp_pools[2];
static uint32_t made;
static CUdeviceptr spare; /* room for residue, 0: none */
static uint64_t spare_bytes;
static uint32_t spared; /* it can be given back */

bool cp_segments_serve(void) {
  return cp_active() && cp.backend == &cp_cuda_backend && !cp_relaxed(&cp.seat->whole);
}

bool cp_segments_hold(CUdeviceptr address) {
  return cp_load(&made) && address - (CUdeviceptr)(uintptr_t)cp_pools[0].base < 2 * cp_pools[0].window;
}

bool cp_pools_start(void) {
  if (CP_LIKELY(cp_load(&made))) return true;
  CUdeviceptr base = cp_extents_base(0);
  if (!base) return false;
  size_t window = cp_extents_base(1) - base;
  cp_acquire(&cp.pool_lock);
  bool done = made || (!cp_pool_init(&cp_pools[0], (char *)(uintptr_t)base, window) &&
                       !cp_pool_init(&cp_pools[1], (char *)(uintptr_t)(base + window), window));
  if (done) cp_store(&made, 1);
  cp_release(&cp.pool_lock);
  return done;
}

bool cp_pools_made(void) { return cp_load(&made); }

/* ---- the seat, pool lock held ------------------------------------------------------------------------------------------ */

uint64_t cp_pools_extent(uint32_t class_) { return cp_round_up(cp_pool_extent(&cp_pools[class_]), CP_PIECE); }

void cp_pools_tell(void) {
  struct cp_seat *s = cp.seat;
  cp_put(&s->p_live, cp_pools[0].live - spare_bytes + cp_handles_used());
  cp_put(&s->p_used, cp_pools_extent(0));
  cp_put(&s->e_live, cp_pools[1].live);
}

void cp_pools_tell_peak(uint32_t class_) {
  uint64_t *peak = class_ ? &cp.seat->e_peak : &cp.seat->p_peak;
  uint64_t bytes = cp_pools_extent(class_) + (class_ ? 0 : cp_handles_used());
  if (bytes > *peak) cp_put(peak, bytes);
}

uint64_t cp_segments_live(void) {
  return cp_relaxed(&cp_pools[0].live) - cp_relaxed(&spare_bytes) + cp_relaxed(&cp_pools[1].live) + cp_handles_used();
}
uint64_t cp_segments_extent(uint32_t class_) {
  return cp_load(&made) ? cp_round_up((size_t)cp_relaxed(&cp_pools[class_].top) * CP_GRAIN, CP_PIECE) : 0;
}

/* ---- room for residue -------------------------------------------------------------------------------------------------- */

void cp_pools_give_back_spare(void) {
  if (!spare || !cp_load(&spared)) return;
  cp_pool_free(&cp_pools[0], cp_pool_address(spare));
  spare = spare_bytes = 0;
}

static uint64_t device_buffer_limit(void) {
  uint64_t limit = cp_load(&cp.seat->p_limit), own = cp_handles_granted();
  return limit > own ? limit - own : 0;
}

/* The daemon lowers the limit, looks how much is used, and cuts the rest.  So when we have told what is used, we look at
 * the limit again. */
CUdeviceptr cp_segments_spare(uint64_t bytes) {
  size_t need, limit = device_buffer_limit(), mapped = cp_extents_mapped(0);
  cp_pools_give_back_spare();
  spare = cp_device(cp_pool_alloc(&cp_pools[0], bytes, limit < mapped ? limit : mapped, CP_IN_USE, &need));
  spare_bytes = spare ? cp_pool_size(&cp_pools[0], cp_pool_address(spare)) : 0;
  cp_store(&cp.seat->p_used, cp_pools_extent(0));
  cp_store(&spared, spare && device_buffer_limit() < cp_pools_extent(0));
  cp_pools_give_back_spare();
  cp_pools_tell();
  return spare;
}

void cp_segments_spared(void) { cp_store(&spared, 1); }

const struct cp_pool *cp_segments_ephemeral(void) { return &cp_pools[1]; }

/* ---- segments ---------------------------------------------------------------------------------------------------------- */

struct cp_block *cp_pools_segment_at(uint32_t class_, CUdeviceptr address) {
  const struct cp_pool *p = &cp_pools[class_];
  size_t offset = address - cp_device(p->base);
  if (offset % CP_GRAIN || offset >= cp_pool_extent(p)) return NULL;
  struct cp_block *b = &p->block[p->at[offset / CP_GRAIN]];
  return b->used && b->stamp == CP_IN_USE ? b : NULL;
}

uint32_t cp_pools_next_used(const struct cp_pool *p, uint32_t i) {
  while (i && !p->block[i].used) i = p->block[i].next;
  return i;
}

bool cp_segment_range(CUdeviceptr address, CUdeviceptr *base, size_t *bytes) {
  bool found = false;
  if (!cp_segments_hold(address)) return false;
  const struct cp_pool *p = &cp_pools[address >= cp_device(cp_pools[1].base)];
  size_t grain = (address - cp_device(p->base)) / CP_GRAIN;
  cp_acquire(&cp.pool_lock);
  for (uint32_t i = cp_pools_next_used(p, cp_pool_first(p)); i && !found; i = cp_pools_next_used(p, p->block[i].next)) {
    const struct cp_block *b = &p->block[i];
    found = grain - b->start < b->size;
    if (!found) continue;
    *base = cp_device(p->base) + (size_t)b->start * CP_GRAIN;
    *bytes = (size_t)b->size * CP_GRAIN;
  }
  cp_release(&cp.pool_lock);
  return found;
}

/* Room for residue is ours and stays. */
void cp_pools_free_all(uint32_t class_) {
  struct cp_pool *p = &cp_pools[class_];
  for (uint32_t i = cp_pools_next_used(p, cp_pool_first(p)), next; i; i = next) {
    char *address = p->base + (size_t)p->block[i].start * CP_GRAIN;
    next = cp_pools_next_used(p, p->block[i].next);
    if (cp_device(address) != spare) cp_pool_free(p, address);
  }
}
