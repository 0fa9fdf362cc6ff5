/* Device memory that the driver itself provides: counted, not moved, and limited only in further processes of a job.
 *
 * In a process with memory by grant that is all but cuMemAlloc's and cuMemCreate's, and called fixed.  A process that has its device to
 * itself, or a share of its own (share_limit.c), has nothing else, and it is counted by class: what PyTorch's caching allocator asks for is of the class that its
 * tensors would have on the host device; everything else is persistent. */
#include "cuda/memory/grant.h"
#include "cuda/memory/driver_memory.h"

#include <string.h>

#define PIECES (1u << 17) /* a power of two */
#define MUCH (256 * CP_MIB) /* more than libraries use on the side */

static struct cp_piece *pieces; /* open addressing.  Books' lock held, as for the counts */
static uint32_t count;
static uint64_t live[2], peak[2]; /* persistent, ephemeral */

/* ---- the counts -------------------------------------------------------------------------------------------------------- */

static void tell(void) {
  struct cp_seat *s = cp.seat;
  if (!s || cp.child || cp.backend != &cp_cuda_backend) return;
  if (!cp_relaxed(&s->whole)) {
    cp_put(&s->fixed, live[0] + live[1]);
    if (live[0] + live[1] > MUCH) cp_traits(CP_TRAIT_FIXED);
    return;
  }
  cp_put(&s->p_live, live[0]);
  cp_put(&s->p_used, live[0]);
  cp_put(&s->p_peak, peak[0]);
  cp_put(&s->e_live, live[1]);
  cp_put(&s->e_peak, peak[1]);
}

void cp_memory_tell(void) {
  cp_acquire(&cp_books.lock);
  tell();
  cp_release(&cp_books.lock);
}

static void add(uint32_t class_, uint64_t bytes) {
  live[class_] += bytes;
  if (live[class_] > peak[class_]) peak[class_] = live[class_];
  tell();
}

static void subtract(uint32_t class_, uint64_t bytes) {
  live[class_] -= bytes < live[class_] ? bytes : live[class_];
  tell();
}

/* ---- the pieces -------------------------------------------------------------------------------------------------------- */

static uint32_t home(uint8_t kind, uint64_t key) {
  return (uint32_t)((key + kind) * 0x9e3779b97f4a7c15ull >> 40) & (PIECES - 1);
}

/* Its place, or the free one where it would be. */
static struct cp_piece *place(uint8_t kind, uint64_t key) {
  uint32_t i = home(kind, key);
  while (pieces[i].kind && (pieces[i].kind != kind || pieces[i].key != key)) i = (i + 1) & (PIECES - 1);
  return &pieces[i];
}

static struct cp_piece *find(uint8_t kind, uint64_t key) {
  struct cp_piece *p = pieces ? place(kind, key) : NULL;
  return p && p->kind ? p : NULL;
}

static struct cp_piece *insert(struct cp_piece new) {
  if (!pieces) pieces = cp_zeroed(PIECES * sizeof *pieces);
  if (!pieces || count > PIECES / 2) return NULL; /* so many that counting them would cost more than it tells */
  struct cp_piece *p = place(new.kind, new.key);
  count += !p->kind;
  *p = new;
  return p;
}

/* Those that follow move up, so that no search ends too early. */
static void erase(struct cp_piece *p) {
  uint32_t hole = (uint32_t)(p - pieces), i = hole;
  count--;
  for (;;) {
    i = (i + 1) & (PIECES - 1);
    if (!pieces[i].kind) break;
    uint32_t h = home(pieces[i].kind, pieces[i].key);
    bool stays = hole <= i ? hole < h && h <= i : hole < h || h <= i;
    if (stays) continue;
    pieces[hole] = pieces[i];
    hole = i;
  }
  pieces[hole].kind = CP_NO_PIECE;
}

static bool is_ephemeral(const void *caller) {
  return cp_active() && !cp_load(&cp.route_persistent) && cp_from_allocator(caller);
}

CUresult cp_memory_came(CUresult r, enum cp_piece_kind kind, const void *key, uint64_t bytes, const void *caller) {
  struct cp_piece new = {.kind = (uint8_t)kind, .bytes = bytes, .ephemeral = is_ephemeral(caller)};
  if (r == CUDA_SUCCESS) memcpy(&new.key, key, sizeof new.key);
  cp_acquire(&cp_books.lock);
  if (r == CUDA_SUCCESS && insert(new)) add(new.ephemeral, bytes);
  cp_share_settle(); /* in one step: it is never counted twice, nor not at all */
  cp_release(&cp_books.lock);
  return r;
}

struct cp_piece cp_memory_goes(enum cp_piece_kind kind, uint64_t key) {
  struct cp_piece was = {0};
  cp_acquire(&cp_books.lock);
  struct cp_piece *p = find(kind, key);
  if (p) {
    was = *p;
    erase(p);
    subtract(was.ephemeral, was.bytes);
  }
  cp_release(&cp_books.lock);
  return was;
}

CUresult cp_memory_gone(CUresult r, struct cp_piece p) {
  if (r == CUDA_SUCCESS && p.kind) cp_share_trim();
  if (r == CUDA_SUCCESS || !p.kind) return r;
  cp_acquire(&cp_books.lock); /* it is still there */
  if (insert(p)) add(p.ephemeral, p.bytes);
  cp_release(&cp_books.lock);
  return r;
}

/* ---- handles: memory lives until it is released and no longer mapped ------------------------------------------------ */

static void release_handle(struct cp_piece *p) {
  if (!p->released || p->mappings) return;
  subtract(p->ephemeral, p->bytes);
  erase(p);
}

void cp_memory_released(uint64_t handle) {
  cp_acquire(&cp_books.lock);
  struct cp_piece *p = find(CP_HANDLE, handle);
  if (p) {
    p->released = 1;
    release_handle(p);
  }
  cp_release(&cp_books.lock);
}

void cp_memory_mapped(uint64_t address, uint64_t bytes, uint64_t handle) {
  cp_acquire(&cp_books.lock);
  struct cp_piece *p = find(CP_HANDLE, handle);
  if (p && insert((struct cp_piece){.kind = CP_MAPPING, .key = address, .bytes = bytes, .handle = handle}))
    find(CP_HANDLE, handle)->mappings++;
  cp_release(&cp_books.lock);
}

void cp_memory_unmapped(uint64_t address, uint64_t bytes) {
  cp_acquire(&cp_books.lock);
  for (uint64_t at = address; at < address + bytes;) {
    struct cp_piece *m = find(CP_MAPPING, at);
    if (!m) break;
    uint64_t handle = m->handle;
    at += m->bytes;
    erase(m);
    struct cp_piece *p = find(CP_HANDLE, handle);
    if (!p) continue;
    p->mappings--;
    release_handle(p);
  }
  cp_release(&cp_books.lock);
  cp_share_trim();
}

uint64_t cp_memory_live_locked(void) { return live[0] + live[1]; }

uint64_t cp_memory_live(void) {
  cp_acquire(&cp_books.lock);
  uint64_t bytes = cp_memory_live_locked();
  cp_release(&cp_books.lock);
  return bytes;
}
