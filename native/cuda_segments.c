/* Segments: what cuMemAlloc returns in a process that has memory by grant.
 *
 * PyTorch's caching allocator asks for segments and cuts them up itself; what its tensors are made of after the first
 * iteration has begun is ephemeral.  Everything else is persistent: weights, and what other libraries ask for. */
#include "cuda_grant.h"

#define TRIM_LEAST (16 * CP_MIB)
#define UNIT 512 /* bytes; the driver's own allocations begin at multiples of it */

#define IN_USE 0u /* a block's stamp; otherwise it was freed during a capture: the sweep that gives it back */

static struct cp_pool pools[2]; /* by class.  Pool lock held, as for the rest */
static uint32_t made;
static uint32_t asides, sweep_number = 1;
static CUdeviceptr spare; /* room for residue, 0: none */
static uint64_t spare_bytes;
static uint32_t spared; /* it can be given back */

bool cp_segments_serve(void) {
  return cp_active() && cp.backend == &cp_cuda_backend && !cp_relaxed(&cp.seat->whole);
}

bool cp_segments_hold(CUdeviceptr address) {
  return cp_load(&made) && address - (CUdeviceptr)(uintptr_t)pools[0].base < 2 * pools[0].window;
}

static bool start(void) {
  if (CP_LIKELY(cp_load(&made))) return true;
  CUdeviceptr base = cp_extents_base(0);
  if (!base) return false;
  size_t window = cp_extents_base(1) - base;
  cp_acquire(&cp.pool_lock);
  bool done = made || (!cp_pool_init(&pools[0], (char *)(uintptr_t)base, window) &&
                       !cp_pool_init(&pools[1], (char *)(uintptr_t)(base + window), window));
  if (done) cp_store(&made, 1);
  cp_release(&cp.pool_lock);
  return done;
}

static CUdeviceptr device(const void *p) { return (CUdeviceptr)(uintptr_t)p; }
static void *pool_address(CUdeviceptr address) { return (void *)(uintptr_t)address; }

/* ---- the seat, pool lock held ------------------------------------------------------------------------------------------ */

static uint64_t extent(uint32_t class_) { return cp_round_up(cp_pool_extent(&pools[class_]), CP_PIECE); }

static void tell(void) {
  struct cp_seat *s = cp.seat;
  cp_put(&s->p_live, pools[0].live - spare_bytes);
  cp_put(&s->p_used, extent(0));
  cp_put(&s->e_live, pools[1].live);
}

static void tell_peak(uint32_t class_) {
  uint64_t *peak = class_ ? &cp.seat->e_peak : &cp.seat->p_peak;
  if (extent(class_) > *peak) cp_put(peak, extent(class_));
}

uint64_t cp_segments_live(void) {
  return cp_relaxed(&pools[0].live) - cp_relaxed(&spare_bytes) + cp_relaxed(&pools[1].live);
}
uint64_t cp_segments_extent(uint32_t class_) {
  return cp_load(&made) ? cp_round_up((size_t)cp_relaxed(&pools[class_].top) * CP_GRAIN, CP_PIECE) : 0;
}

/* ---- room for residue -------------------------------------------------------------------------------------------------- */

static size_t granted(uint32_t class_) {
  size_t cap = cp_load(class_ ? &cp.e_cap : &cp.p_cap), mapped = cp_extents_mapped(class_);
  return cp_load(&cp.gate) != CP_CLOSED && mapped < cap ? mapped : cap;
}

static void give_back_spare(void) {
  if (!spare || !cp_load(&spared)) return;
  cp_pool_free(&pools[0], pool_address(spare));
  spare = spare_bytes = 0;
}

/* The daemon lowers the limit, looks how much is used, and cuts the rest.  So when we have told what is used, we look at
 * the limit again. */
CUdeviceptr cp_segments_spare(uint64_t bytes) {
  size_t need, limit = cp_load(&cp.seat->p_limit), mapped = cp_extents_mapped(0);
  give_back_spare();
  spare = device(cp_pool_alloc(&pools[0], bytes, limit < mapped ? limit : mapped, IN_USE, &need));
  spare_bytes = spare ? cp_pool_size(&pools[0], pool_address(spare)) : 0;
  cp_store(&cp.seat->p_used, extent(0));
  cp_store(&spared, spare && cp_load(&cp.seat->p_limit) < extent(0));
  give_back_spare();
  tell();
  return spare;
}

void cp_segments_spared(void) { cp_store(&spared, 1); }

const struct cp_pool *cp_segments_ephemeral(void) { return &pools[1]; }

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

/* Pool lock held.  Its record, or NULL if no segment begins there. */
static struct cp_block *segment_at(uint32_t class_, CUdeviceptr address) {
  const struct cp_pool *p = &pools[class_];
  size_t offset = address - device(p->base);
  if (offset % CP_GRAIN || offset >= cp_pool_extent(p)) return NULL;
  struct cp_block *b = &p->block[p->at[offset / CP_GRAIN]];
  return b->used && b->stamp == IN_USE ? b : NULL;
}

static uint32_t next_used(const struct cp_pool *p, uint32_t i) {
  while (i && !p->block[i].used) i = p->block[i].next;
  return i;
}

bool cp_segment_range(CUdeviceptr address, CUdeviceptr *base, size_t *bytes) {
  bool found = false;
  if (!cp_segments_hold(address)) return false;
  const struct cp_pool *p = &pools[address >= device(pools[1].base)];
  size_t grain = (address - device(p->base)) / CP_GRAIN;
  cp_acquire(&cp.pool_lock);
  for (uint32_t i = next_used(p, cp_pool_first(p)); i && !found; i = next_used(p, p->block[i].next)) {
    const struct cp_block *b = &p->block[i];
    found = grain - b->start < b->size;
    if (!found) continue;
    *base = device(p->base) + (size_t)b->start * CP_GRAIN;
    *bytes = (size_t)b->size * CP_GRAIN;
  }
  cp_release(&cp.pool_lock);
  return found;
}

static void give_back_asides(uint32_t class_, uint32_t number) {
  struct cp_pool *p = &pools[class_];
  for (uint32_t i = next_used(p, cp_pool_first(p)), next; i; i = next) {
    const struct cp_block *b = &p->block[i];
    next = next_used(p, b->next);
    if (b->stamp == IN_USE || b->stamp > number) continue;
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
  tell();
  cp_release(&cp.pool_lock);
}

CUresult cp_segment_free(CUdeviceptr address) {
  uint32_t class_ = address >= device(pools[1].base);
  sweep();
  CUresult r = wait_for_device();
  if (!waited(r) && !capture_forbids(r)) return r;
  cp_acquire(&cp.pool_lock);
  struct cp_block *b = segment_at(class_, address);
  if (b && waited(r)) cp_pool_free(&pools[class_], pool_address(address));
  if (b && !waited(r)) {
    b->stamp = sweep_number;
    cp_store(&asides, asides + 1);
  }
  cp.frees += b != NULL;
  give_back_spare();
  tell();
  cp_release(&cp.pool_lock);
  if (!b) return CUDA_ERROR_INVALID_VALUE;
  return waited(r) ? r : CUDA_SUCCESS;
}

/* Room for residue is ours and stays. */
static void free_all(uint32_t class_) {
  struct cp_pool *p = &pools[class_];
  for (uint32_t i = next_used(p, cp_pool_first(p)), next; i; i = next) {
    char *address = p->base + (size_t)p->block[i].start * CP_GRAIN;
    next = next_used(p, p->block[i].next);
    if (device(address) != spare) cp_pool_free(p, address);
  }
}

void cp_segments_lost(void) {
  if (!cp_load(&made) || !cp_segments_serve()) return;
  cp_acquire(&cp.pool_lock);
  free_all(0);
  free_all(1);
  cp_store(&asides, 0);
  cp_acquire(&cp.gate_lock);
  cp_residue_forget();
  cp_release(&cp.gate_lock);
  give_back_spare();
  tell();
  cp_release(&cp.pool_lock);
}

/* ---- allocating -------------------------------------------------------------------------------------------------------- */

/* The caching allocator's latest request in this thread was refused, so that it gives back what it does not use. */
static __thread bool refused __attribute__((tls_model("initial-exec")));

/* Pool lock not held.  False: total is the extent that would do. */
static bool take(uint32_t class_, size_t bytes, CUdeviceptr *address, size_t *total) {
  cp_acquire(&cp.pool_lock);
  give_back_spare();
  *address = device(cp_pool_alloc(&pools[class_], cp_round_up(bytes, UNIT), granted(class_), IN_USE, total));
  *total = cp_round_up(*total, CP_PIECE);
  bool taken = *address != 0;
  cp.allocs += taken;
  tell();
  if (taken) tell_peak(class_);
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
  give_back_spare();
  size_t total = extent(class_) + kept;
  bool much = total < *cap && *cap - total >= least && !cp_load(&cp.seat->offloaded);
  if (much) cp_store(cap, total);
  cp_release(&cp.pool_lock);
  if (much) cp_send(CP_SHRUNK, class_, total, 0, 0);
}

void cp_segments_trim(void) {
  if (!cp_segments_serve() || !cp_load(&made) || !cp_try(&cp.grow_lock)) return;
  size_t quarter = cp.p_cap / 4;
  cp_room_ask();
  give_back_idle(0, quarter > TRIM_LEAST ? quarter : TRIM_LEAST, cp_room_kept());
  cp_release(&cp.grow_lock);
}

/* again: the caching allocator has given back what it could, and what that was must not stand in its way. */
static bool grow(uint32_t class_, size_t total, bool optional, bool again) {
  const size_t *cap = class_ ? &cp.e_cap : &cp.p_cap;
  if (total > pools[class_].window) return false;
  if (cp_load(cap) >= total) {
    if (look_for(class_, total)) return true;
    if (cp_load(cap) >= total) return false;
  }
  if (again) {
    cp_acquire(&cp.grow_lock);
    give_back_idle(!class_, 1, 0);
    cp_release(&cp.grow_lock);
  }
  return cp_grow(class_, total, optional);
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
  if (!start() || bytes > pools[class_].window) return CUDA_ERROR_OUT_OF_MEMORY;
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
