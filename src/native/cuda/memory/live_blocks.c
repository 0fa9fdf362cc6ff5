/* What of the ephemeral range is live when a turn ends: the blocks that the runtime has listed for this very end, for only
 * PyTorch's allocator knows which parts of its segments are in use; otherwise whole segments. */
#include "cuda/memory/grant.h"

#include <stdlib.h>

#define MOST_RUNS 65536u
#define NEAR (16 * CP_KIB) /* to copy a gap costs less than to copy twice */
#define PATIENCE_US 1000000u

enum { NO_LIST = 0, WANTED, READY };
static uint32_t state; /* futex */
static uint64_t asked_us;
static __thread char me __attribute__((tls_model("initial-exec")));
static const char *asker; /* the thread that was asked */
static struct cp_lock list_lock; /* from WANTED on, until it is READY or given up */

static struct cp_live_run runs[MOST_RUNS]; /* kept until the next end of a turn */
static size_t count;

static uint64_t end_of(const struct cp_live_run *r) { return r->start + r->length; }

/* In order of their begins.  Without room the last one grows: too much is not wrong. */
static void append(struct cp_live_run new) {
  struct cp_live_run *last = count ? &runs[count - 1] : NULL;
  if (!new.length) return;
  if (!last || (new.start > end_of(last) + NEAR && count < MOST_RUNS))
    runs[count++] = new;
  else if (end_of(&new) > end_of(last))
    last->length = end_of(&new) - last->start;
}

/* ---- the runtime's list ------------------------------------------------------------------------------------------------ */

bool cp_live_ask(void) {
  if (!cp_segments_serve() || !cp_relaxed(&cp.seat->e_live)) return false;
  asked_us = cp_now_us();
  asker = &me;
  cp_store(&state, WANTED);
  return true;
}

static int by_start(const void *a, const void *b) {
  const struct cp_live_run *x = a, *y = b;
  return (x->start > y->start) - (x->start < y->start);
}

/* The part of a block that lies in the ephemeral range. */
static struct cp_live_run clipped(uint64_t address, uint64_t bytes) {
  uint64_t base = cp_extents_base(1), most = cp_segments_extent(1);
  uint64_t from = address > base ? address - base : 0, to = address + bytes > base ? address + bytes - base : 0;
  if (address < base && !to) from = UINT64_MAX; /* elsewhere: says nothing of ours */
  if (to > most) to = most;
  return (struct cp_live_run){from, from < to ? to - from : 0};
}

/* Pool lock held.  Does the list, in order, have something to say of every segment?  One that it does not know was not
 * made by the caching allocator (which can be turned off), or only just now. */
static bool knows_all(uint64_t blocks) {
  const struct cp_pool *p = cp_segments_ephemeral();
  uint64_t at = 0;
  for (uint32_t i = cp_pool_first(p); i; i = p->block[i].next) {
    uint64_t begin = p->block[i].start * (uint64_t)CP_GRAIN, end = begin + p->block[i].size * (uint64_t)CP_GRAIN;
    while (at < blocks && runs[at].start < begin) at++;
    if (p->block[i].used && (at == blocks || runs[at].start >= end)) return false;
  }
  return true;
}

/* Pool lock held. */
static bool fill(const uint64_t *addresses, const uint64_t *bytes, uint64_t blocks) {
  if (blocks > MOST_RUNS) return false;
  for (uint64_t i = 0; i < blocks; i++) runs[i] = clipped(addresses[i], bytes[i]);
  qsort(runs, blocks, sizeof *runs, by_start);
  if (!knows_all(blocks)) return false;
  count = 0;
  for (uint64_t i = 0; i < blocks; i++) append(runs[i]);
  return true;
}

/* The live blocks of PyTorch's allocator, and an empty one at the begin of each of its segments, for the end of a turn that
 * cp_step_end or cp_iteration_end has announced to this thread.  UINT64_MAX: they are not known. */
CP_EXPORT void cp_live_blocks(const uint64_t *addresses, const uint64_t *bytes, uint64_t blocks) {
  cp_acquire(&cp.pool_lock);
  cp_acquire(&list_lock);
  if (cp_load(&state) == WANTED && asker == &me) {
    cp_store(&state, fill(addresses, bytes, blocks) ? READY : NO_LIST);
    cp_futex_wake(&state);
  }
  cp_release(&list_lock);
  cp_release(&cp.pool_lock);
}

static void give_up_list(void) {
  cp_acquire(&list_lock);
  if (cp_load(&state) == WANTED) cp_store(&state, NO_LIST);
  cp_release(&list_lock);
}

void cp_live_await(void) {
  while (cp_load(&state) == WANTED) {
    uint64_t spent = cp_now_us() - asked_us;
    if (spent < PATIENCE_US)
      cp_futex_wait(&state, WANTED, (int64_t)(PATIENCE_US - spent));
    else
      give_up_list();
  }
}

void cp_live_forget(void) {
  cp_acquire(&list_lock);
  cp_store(&state, NO_LIST);
  cp_release(&list_lock);
}

/* ---- what is live ------------------------------------------------------------------------------------------------------ */

static void whole_segments(void) {
  const struct cp_pool *p = cp_segments_ephemeral();
  count = 0;
  for (uint32_t i = cp_pool_first(p); i; i = p->block[i].next)
    if (p->block[i].used)
      append((struct cp_live_run){p->block[i].start * (uint64_t)CP_GRAIN, p->block[i].size * (uint64_t)CP_GRAIN});
}

const struct cp_live_run *cp_live_runs(size_t *n) {
  if (cp_load(&state) != READY) whole_segments();
  *n = count;
  return runs;
}
