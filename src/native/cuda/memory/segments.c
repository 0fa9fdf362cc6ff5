/* Segments: what cuMemAlloc returns in a process that has memory by grant.
 *
 * PyTorch's caching allocator asks for segments and cuts them up itself; what its tensors are made of after the first
 * iteration has begun is ephemeral.  Everything else is persistent: weights, and what other libraries ask for. */
#include "cuda/memory/pools.h"

#define TRIM_LEAST (16 * CP_MIB)
#define UNIT 512 /* bytes; the driver's own allocations begin at multiples of it */

static uint32_t asides, sweep_number = 1; /* what is put aside.  Pool lock held */

/* What is granted, without what the program makes itself. */
static size_t limit(uint32_t class_) {
  size_t cap = cp_load(class_ ? &cp.e_cap : &cp.p_cap), own = class_ ? 0 : cp_handles_granted();
  return cap > own ? cap - own : 0;
}

static size_t granted(uint32_t class_) {
  size_t cap = limit(class_), mapped = cp_extents_mapped(class_);
  return cp_load(&cp.gate) != CP_CLOSED && mapped < cap ? mapped : cap;
}

/* ---- freeing ----------------------------------------------------------------------------------------------------------- */

/* Who frees memory may rely on the wait for the device that comes with it, but a capture forbids to wait. */
static CUresult wait_for_device(void) {
  return cp_capturing() ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : cp_real.cuCtxSynchronize();
}

/* A capture that we do not know of, or that has begun just now. */
static bool capture_forbids(CUresult r) {
  return r >= CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED && r <= CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
}

/* After an error of the context's nothing waits for anything any more. */
static bool waited(CUresult r) {
  return !capture_forbids(r) && r != CUDA_ERROR_INVALID_CONTEXT &&
         r != CUDA_ERROR_NOT_INITIALIZED && r != CUDA_ERROR_DEINITIALIZED;
}

static void give_back_asides(uint32_t class_, uint32_t number) {
  struct cp_pool *p = &cp_pools[class_];
  for (uint32_t i = cp_pools_next_used(p, cp_pool_first(p)), next; i; i = next) {
    const struct cp_block *b = &p->block[i];
    next = cp_pools_next_used(p, b->next);
    if (b->stamp == CP_IN_USE || b->stamp > number) continue;
    cp_pool_free(p, p->base + (size_t)b->start * CP_GRAIN);
    asides--;
  }
}

/* What is put aside after the wait has begun is left to the next sweep. */
static void sweep(void) {
  if (CP_LIKELY(!cp_load(&asides)) || cp_capturing()) return;
  cp_acquire(&cp.pool_lock);
  uint32_t number = sweep_number++;
  cp_release(&cp.pool_lock);
  if (!waited(wait_for_device())) return;
  cp_acquire(&cp.pool_lock);
  give_back_asides(0, number);
  give_back_asides(1, number);
  cp_pools_tell();
  cp_release(&cp.pool_lock);
}

CUresult cp_segment_free(CUdeviceptr address) {
  uint32_t class_ = address >= cp_device(cp_pools[1].base);
  sweep();
  CUresult r = wait_for_device();
  if (!waited(r) && !capture_forbids(r)) return r;
  cp_acquire(&cp.pool_lock);
  struct cp_block *b = cp_pools_segment_at(class_, address);
  if (b && waited(r)) cp_pool_free(&cp_pools[class_], cp_pool_address(address));
  if (b && !waited(r)) {
    b->stamp = sweep_number;
    cp_store(&asides, asides + 1);
  }
  cp.frees += b != NULL;
  cp_pools_give_back_spare();
  cp_pools_tell();
  cp_release(&cp.pool_lock);
  if (!b) return CUDA_ERROR_INVALID_VALUE;
  return waited(r) ? r : CUDA_SUCCESS;
}

void cp_segments_lost(void) {
  if (!cp_pools_made() || !cp_segments_serve()) return;
  cp_acquire(&cp.pool_lock);
  cp_pools_free_all(0);
  cp_pools_free_all(1);
  cp_store(&asides, 0);
  cp_acquire(&cp.gate_lock);
  cp_residue_forget();
  cp_release(&cp.gate_lock);
  cp_pools_give_back_spare();
  cp_pools_tell();
  cp_release(&cp.pool_lock);
}

/* ---- allocating -------------------------------------------------------------------------------------------------------- */

/* The caching allocator's latest request in this thread was refused, so that it gives back what it does not use. */
static __thread bool refused __attribute__((tls_model("initial-exec")));

bool cp_segment_refused(void) { return refused; }

/* Pool lock not held.  False: total is the extent that would do. */
static bool take(uint32_t class_, size_t bytes, CUdeviceptr *address, size_t *total) {
  cp_acquire(&cp.pool_lock);
  cp_pools_give_back_spare();
  *address = cp_device(cp_pool_alloc(&cp_pools[class_], cp_round_up(bytes, UNIT), granted(class_), CP_IN_USE, total));
  *total = cp_round_up(*total, CP_PIECE);
  bool taken = *address != 0;
  cp.allocs += taken;
  cp_pools_tell();
  if (taken) cp_pools_tell_peak(class_);
  cp_release(&cp.pool_lock);
  return taken;
}

/* Enough is granted, but it was not there: another thread has just got it, the limit has come down since, or it cannot be
 * mapped. */
static bool look_for(uint32_t class_, size_t total) {
  cp_extents_take(false);
  if (granted(class_) >= total) return true;
  cp_lower_limits();
  return false;
}

/* What is granted and not used, but for what is kept.  Grow lock held. */
static void give_back_idle(uint32_t class_, size_t least, size_t kept) {
  if (!cp_grow_settle()) return;
  size_t *cap = class_ ? &cp.e_cap : &cp.p_cap;
  cp_acquire(&cp.pool_lock);
  cp_pools_give_back_spare();
  size_t total = cp_pools_extent(class_) + kept + (class_ ? 0 : cp_handles_needed());
  bool much = total < *cap && *cap - total >= least && !cp_load(&cp.seat->offloaded);
  if (!class_ && (much || total >= *cap)) cp_handles_lower();
  if (much) cp_store(cap, total);
  cp_release(&cp.pool_lock);
  if (much) cp_send(CP_SHRUNK, class_, total, 0, 0);
}

/* Less is not worth a request later. */
static size_t least_idle(void) { return cp.p_cap / 4 > TRIM_LEAST ? cp.p_cap / 4 : TRIM_LEAST; }

void cp_segments_trim(void) {
  if (!cp_segments_serve() || !cp_pools_made() || !cp_try(&cp.grow_lock)) return;
  cp_room_ask();
  give_back_idle(0, least_idle(), cp_room_kept());
  cp_release(&cp.grow_lock);
}

void cp_segments_give_back(size_t least) {
  if (!cp_segments_serve() || !cp_pools_made()) return;
  if (least)
    cp_acquire(&cp.grow_lock);
  else if (!cp_try(&cp.grow_lock)) /* a thread waits for memory */
    return;
  give_back_idle(0, least ? least : least_idle(), 0);
  cp_release(&cp.grow_lock);
}

/* again: the caching allocator has given back what it could, and what that was must not stand in its way. */
static bool grow(uint32_t class_, size_t total, bool optional, bool again) {
  if (total > cp_pools[class_].window) return false;
  if (limit(class_) >= total) {
    if (look_for(class_, total)) return true;
    if (limit(class_) >= total) return false;
  }
  if (!class_ && cp_handles_granted() > cp_handles_used()) cp_segments_give_back(1);
  if (again) {
    cp_acquire(&cp.grow_lock);
    give_back_idle(!class_, 1, 0);
    cp_release(&cp.grow_lock);
  }
  return cp_grow(class_, total + (class_ ? 0 : cp_handles_granted()), optional);
}

/* The program begins (1) or ends (-1) to allocate to a pool of its own: PyTorch's allocator does not ask again there. */
CP_EXPORT void cp_pool_scope(int delta) { cp_add(&cp.pool_scopes, (uint32_t)delta); }

CUresult cp_segment_alloc(CUdeviceptr *address, size_t bytes, bool allocator) {
  uint32_t class_ = allocator && !cp_load(&cp.route_persistent);
  CUcontext context = NULL;
  CUdeviceptr at;
  if (!address || !bytes) return CUDA_ERROR_INVALID_VALUE;
  CUresult r = cp_real.cuCtxGetCurrent(&context);
  if (r != CUDA_SUCCESS || !context) return r != CUDA_SUCCESS ? r : CUDA_ERROR_INVALID_CONTEXT;
  if (!cp_pools_start() || bytes > cp_pools[class_].window) return CUDA_ERROR_OUT_OF_MEMORY;
  bool spares = class_ && !cp_load(&cp.pool_scopes); /* what PyTorch then gives back can be of use */
  bool again = allocator && refused, optional = allocator && spares && !again && !cp_capturing();
  if (allocator) refused = false;
  sweep();
  for (size_t total = 0; !take(class_, bytes, &at, &total);) {
    if (grow(class_, total, optional, again)) continue;
    refused = optional;
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  *address = at;
  return CUDA_SUCCESS;
}
