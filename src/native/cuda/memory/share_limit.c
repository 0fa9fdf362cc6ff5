/* What a secondary process may have: memory from the driver itself, but not more than `p_limit`.
 *
 * The process asks as for persistent memory (turn/grow.c), and the daemon answers at once: what the device has not got
 * beside other jobs' memory is refused, with the driver's own error, with which programs know how to deal. */
#include "cuda/memory/grant.h"
#include "cuda/memory/driver_memory.h"

#define TRIM_LEAST (16 * CP_MIB)

static uint64_t claimed; /* bytes of allocations under way.  Books' lock */
static __thread uint64_t own __attribute__((tls_model("initial-exec"))); /* this thread's of them */

/* The driver says so; sums stay right. */
static bool is_nonsense(uint64_t bytes) { return bytes >> 48; }

static bool shares(void) {
  return cp_active() && cp.backend == &cp_cuda_backend && cp_load(&cp.seat->whole) == CP_WHOLE_SHARE;
}

/* What it has asked for under an earlier agreement (it had the job's seat, and never used it) counts no more. */
static uint64_t limit(void) {
  uint64_t cap = cp_load(&cp.p_cap), granted = cp_load(&cp.seat->p_limit);
  return cap < granted ? cap : granted;
}

/* Books' lock held. */
static uint64_t in_use(void) { return cp_memory_live_locked() + claimed; }

/* Returns 0, or how many bytes in all it takes. */
static uint64_t claim(uint64_t bytes) {
  cp_acquire(&cp_books.lock);
  uint64_t total = in_use() + bytes;
  bool fits = !shares() || total <= limit();
  if (fits) claimed += own = bytes;
  cp_release(&cp_books.lock);
  return fits ? 0 : cp_round_up(total, CP_PIECE);
}

static bool ask(uint64_t total) {
  cp_acquire(&cp.grow_lock);
  if (cp_active()) cp_lower_limits();
  cp_release(&cp.grow_lock);
  return cp_grow(2, total, false);
}

bool cp_share_claim(uint64_t bytes) {
  if (CP_UNLIKELY(cp_load(&cp_shut) & CP_ASK)) cp_cuda_claim(); /* before it is decided whose memory this is */
  if (is_nonsense(bytes)) return !shares();
  for (uint64_t total; (total = claim(bytes));)
    if (!ask(total)) return false;
  return true;
}

void cp_share_settle(void) {
  claimed -= own;
  own = 0;
}

/* Much of what it was granted is not in use any more.  Grow lock held. */
static uint64_t idle_beyond(void) {
  cp_acquire(&cp_books.lock);
  uint64_t total = cp_round_up(in_use(), CP_PIECE), most = limit(), quarter = most / 4;
  bool much = total < most && most - total >= (quarter > TRIM_LEAST ? quarter : TRIM_LEAST);
  if (much) cp_store(&cp.p_cap, total);
  cp_release(&cp_books.lock);
  return much ? total : UINT64_MAX;
}

void cp_share_trim(void) {
  if (!shares() || !cp_try(&cp.grow_lock)) return;
  uint64_t total = cp_grow_settle() ? idle_beyond() : UINT64_MAX;
  if (total != UINT64_MAX) cp_send(CP_SHRUNK, 2, total, 0, 0);
  cp_release(&cp.grow_lock);
}
