/* Interposed allocation: memory that libc10 or ggml asks for becomes device memory, all other calls pass through. */
#include <dlfcn.h>
#include <string.h>

#include "base/libc.h"
#include "base/process.h"

#define MIN_ARENA ((size_t)1024) /* smaller tensors stay in the ordinary heap */

extern void __libc_free(void *) __attribute__((weak)); /* glibc's */
extern void *__libc_memalign(size_t, size_t) __attribute__((weak));
extern void *__libc_realloc(void *, size_t) __attribute__((weak));

/* dlsym may itself allocate and free, so until it has answered glibc's own names are used. */
static int early_posix_memalign(void **, size_t, size_t);
static void early_free(void *);
static void *early_realloc(void *, size_t);
static int (*next_posix_memalign)(void **, size_t, size_t) = early_posix_memalign;
static void (*next_free)(void *) = early_free;
static void *(*next_realloc)(void *, size_t) = early_realloc;

__attribute__((constructor)) static void find_next(void) {
  next_posix_memalign = (int (*)(void **, size_t, size_t))dlsym(RTLD_NEXT, "posix_memalign");
  next_realloc = (void *(*)(void *, size_t))dlsym(RTLD_NEXT, "realloc");
  next_free = (void (*)(void *))dlsym(RTLD_NEXT, "free");
}

/* Another C library has no such names: there they are looked up without dlsym. */
static bool find_foreign(void) {
  if (!cp_libc_is_foreign()) return false;
  next_posix_memalign = (int (*)(void **, size_t, size_t))cp_libc_function("posix_memalign");
  next_realloc = (void *(*)(void *, size_t))cp_libc_function("realloc");
  next_free = (void (*)(void *))cp_libc_function("free");
  return true;
}

static int early_posix_memalign(void **out, size_t alignment, size_t bytes) {
  if (find_foreign()) return next_posix_memalign(out, alignment, bytes);
  if (!alignment || alignment & (alignment - 1) || alignment % sizeof(void *)) return EINVAL;
  *out = __libc_memalign(alignment, bytes);
  return *out ? 0 : ENOMEM;
}

static void early_free(void *p) { find_foreign() ? next_free(p) : __libc_free(p); }

static void *early_realloc(void *p, size_t bytes) {
  return find_foreign() ? next_realloc(p, bytes) : __libc_realloc(p, bytes);
}

/* ---- counters, under the pool lock ---------------------------------------------------------------------------------- */

static void count_persistent(int64_t bytes) {
  struct cp_seat *s = cp.seat;
  cp_put(&s->p_live, s->p_live + (uint64_t)bytes);
  if (bytes < 0) return;
  size_t used = cp_arenas_persistent(&cp.arenas);
  cp_put(&s->p_used, used);
  if (used > s->p_peak) cp_put(&s->p_peak, used);
}

static void count_ephemeral(int64_t bytes) {
  struct cp_seat *s = cp.seat;
  struct cp_pool *p = &cp.arenas.win[cp.arenas.ephemeral].pool;
  cp_put(&s->e_live, p->live);
  cp_boundary_note(&cp.boundary, p->live);
  if (bytes > 0 && cp_pool_high(p) > s->e_peak) cp_put(&s->e_peak, cp_pool_high(p));
}

/* ---- allocation ------------------------------------------------------------------------------------------------------ */

/* Pool lock held.  Is this where the turn should change hands? */
static bool give_way_here(void) {
  if (CP_LIKELY(cp_relaxed(&cp.seat->yield) != CP_YIELD_BOUNDARY)) return false;
  if (cp_relaxed(&cp.gate) != CP_OPEN) return false;
  uint64_t live = cp.arenas.win[cp.arenas.ephemeral].pool.live;
  return cp_boundary_here(&cp.boundary, live, cp_now_us(), cp.seat->grace_us);
}

/* Pool lock held, packed arenas.  Takes `missing` bytes of pages away that hold no live block.  False: they cannot be taken
 * now, because this job has no turn, or because what is there is not all there is yet. */
static bool reclaim(size_t missing) {
  struct cp_host *h = &cp.arenas.host;
  cp_acquire(&cp.gate_lock);
  bool here = cp.gate != CP_CLOSED && cp.arenas.packed;
  bool enough = here && cp_arenas_reclaim(&cp.arenas, missing) >= missing;
  bool whole = here && cp_host_next(h, 0) == h->chunks;
  cp_release(&cp.gate_lock);
  return enough || whole;
}

/* Pool lock held.  The block's pages count from now on; or, if that is too many, *total says how many that would be. */
static bool count_pages(const void *p, size_t bytes, size_t *total, bool *again) {
  size_t missing = cp_arenas_uncounted(&cp.arenas, p, bytes), cap = cp_load(&cp.p_cap);
  *total = cp_arenas_persistent(&cp.arenas) + missing;
  if (*total > cap) *again = !reclaim(*total - cap);
  *total = cp_arenas_persistent(&cp.arenas) + missing;
  if (*total > cap) return false;
  cp_arenas_count(&cp.arenas, p, bytes);
  return true;
}

/* Pool lock held, packed arenas.  again: to be tried once more when the turn is there. */
static void *try_packed(bool persistent, size_t bytes, size_t *total, bool *again) {
  struct cp_pool *pool = &cp.arenas.win[persistent ? 0 : cp.arenas.ephemeral].pool;
  void *p = cp_pool_alloc(pool, bytes, pool->window, (uint32_t)cp.boundary.iterations, total);
  if (!p) return NULL;
  size_t size = cp_pool_size(pool, p);
  if (!count_pages(p, size, total, again)) {
    cp_pool_free(pool, p);
    return NULL;
  }
  cp.allocs++;
  count_persistent(persistent ? (int64_t)size : 0);
  if (!persistent) count_ephemeral(0);
  return p;
}

static void *try_alloc(bool persistent, size_t bytes, size_t *total) {
  size_t beside = persistent ? cp.arenas.retired : 0;
  size_t cap = persistent ? cp.p_cap : cp.e_cap;
  struct cp_pool *pool = &cp.arenas.win[persistent ? 0 : cp.arenas.ephemeral].pool;
  void *p = cp_pool_alloc(pool, bytes, cap > beside ? cap - beside : 0, (uint32_t)cp.boundary.iterations, total);
  *total = cp_round_up(*total + beside, CP_PAGE);
  if (!p) return NULL;
  cp.allocs++;
  if (persistent)
    count_persistent((int64_t)cp_pool_size(pool, p));
  else
    count_ephemeral((int64_t)bytes);
  return p;
}

/* A request that Ctrl-C has ended was not denied: the program goes on without its memory. */
static bool get_memory(bool persistent, bool packed, size_t bytes, size_t total) {
  uint32_t interrupts = cp_load(&cp.interrupts);
  if (cp_grow(persistent || packed ? 0 : 1, total, false)) return true;
  if (cp_load(&cp.interrupts) != interrupts) return false;
  if (!packed && cp_pack(bytes)) return true;
  return cp_refused(bytes), false;
}

void *cp_arena_alloc(size_t bytes) {
  for (;;) {
    size_t total = 0;
    cp_acquire(&cp.pool_lock);
    if (CP_UNLIKELY(give_way_here())) {
      cp_release(&cp.pool_lock);
      cp_turn_end(CP_BY_BOUNDARY);
      cp_acquire(&cp.pool_lock);
    }
    if (CP_UNLIKELY(!cp_active())) { /* the seat has just gone */
      cp_release(&cp.pool_lock);
      return NULL;
    }
    if (CP_UNLIKELY(cp_relaxed(&cp.packing))) { /* what has been asked for has no room for another block */
      cp_release(&cp.pool_lock);
      cp_futex_wait(&cp.packing, 1, -1);
      continue;
    }
    bool persistent = cp.route_persistent || cp_sticky(bytes), packed = cp.packed, again = false;
    void *p = packed ? try_packed(persistent, bytes, &total, &again) : try_alloc(persistent, bytes, &total);
    cp_release(&cp.pool_lock);
    if (CP_LIKELY(p != NULL)) return p;
    if (again)
      cp_pack_settle();
    else if (!get_memory(persistent, packed, bytes, total))
      return NULL;
  }
}

bool cp_arena_free(void *p) {
  if (CP_LIKELY(!cp_arenas_hold(&cp.arenas, p))) return false;
  if (cp.child) return true; /* a forked child holds a snapshot and no records */
  cp_acquire(&cp.pool_lock);
  struct cp_window *w = cp_arenas_window(&cp.arenas, p);
  size_t bytes = w->kind == CP_UNUSED ? 0 : cp_pool_free(&w->pool, p);
  cp.frees += bytes != 0;
  if (w->kind == CP_EPHEMERAL)
    count_ephemeral(-(int64_t)bytes);
  else if (bytes)
    count_persistent(-(int64_t)bytes);
  if (w->kind == CP_RETIRED) cp.retired_freed += bytes;
  cp_release(&cp.pool_lock);
  return true;
}

/* A pending process attaches with its first tensor. */
static inline bool may_serve(size_t bytes) {
  return cp_active() || (CP_UNLIKELY(cp_relaxed(&cp.pending)) && bytes >= cp_relaxed(&cp_least_claim));
}

static inline bool from_tensors(const void *caller) {
  for (uint32_t i = 0; i < cp.text_count; i++)
    if ((uintptr_t)caller - cp.text[i].lo < cp.text[i].hi - cp.text[i].lo) return true;
  return false;
}

/* ---- interposed ------------------------------------------------------------------------------------------------------ */

CP_EXPORT int posix_memalign(void **out, size_t alignment, size_t bytes) {
  if (CP_UNLIKELY(cp_relaxed(&cp_looks)) && bytes >= MIN_ARENA) cp_look_for_library();
  while (may_serve(bytes) && bytes >= MIN_ARENA && alignment <= CP_GRAIN && from_tensors(__builtin_return_address(0))) {
    if (CP_UNLIKELY(!cp_active())) {
      cp_claim_seat();
      continue; /* also whose tensors are the device's is known for certain only now */
    }
    void *p = cp_arena_alloc(bytes);
    if (p) {
      *out = p;
      return 0;
    }
    if (cp_active()) return ENOMEM;
  }
  return next_posix_memalign(out, alignment, bytes);
}

CP_EXPORT void free(void *p) {
  if (CP_UNLIKELY(cp_arenas_hold(&cp.arenas, p)))
    cp_arena_free(p);
  else
    next_free(p);
}

/* No program is known to do this to a tensor's memory; if one does, the call must not reach glibc. */
CP_EXPORT void *realloc(void *p, size_t bytes) {
  if (CP_LIKELY(!cp_arenas_hold(&cp.arenas, p))) return next_realloc(p, bytes);
  void *q = NULL;
  if (bytes && !posix_memalign(&q, 64, bytes)) {
    struct cp_window *w = cp_arenas_window(&cp.arenas, p);
    size_t old = w->kind == CP_UNUSED || cp.child ? bytes : cp_pool_size(&w->pool, p);
    memcpy(q, p, old < bytes ? old : bytes);
  }
  if (!bytes || q) cp_arena_free(p);
  return q;
}
