#include "arena.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>

#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif

static void *map_at(char *where, size_t bytes, int prot, int fd, off_t offset) {
  int flags = MAP_FIXED | MAP_NORESERVE | (fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED);
  cp_add(&cp_syscalls, 1);
  void *p = mmap(where, bytes, prot, flags, fd, offset);
  return p == MAP_FAILED ? NULL : p;
}

/* ---- windows ---------------------------------------------------------------------------------------------------- */

/* A window starts closed: memory behind the parking range, nothing behind the base. */
static int window_start(struct cp_arenas *a, uint32_t i, enum cp_kind kind, int fd, off_t offset) {
  struct cp_window *w = &a->win[i];
  if (cp_pool_init(&w->pool, w->base, a->window)) return -1;
  if (!map_at(w->park, a->window, PROT_READ | PROT_WRITE, fd, offset)) return -1;
  if (!map_at(w->base, a->window, PROT_NONE, fd, offset)) return -1;
  w->kind = kind;
  w->fd = fd;
  w->offset = offset;
  w->backed = 0;
  return 0;
}

static void window_stop(struct cp_arenas *a, uint32_t i) {
  struct cp_window *w = &a->win[i];
  map_at(w->park, a->window, PROT_NONE, -1, 0);
  map_at(w->base, a->window, PROT_NONE, -1, 0);
  cp_pool_destroy(&w->pool);
  w->kind = CP_UNUSED;
}

/* Does this kernel move the page tables of a shared file mapping and leave the range behind?  Tried, not assumed. */
static bool try_parking(char *from, char *to, int fd) {
  if (!map_at(from, CP_PAGE, PROT_READ | PROT_WRITE, fd, 0)) return false;
  cp_add(&cp_syscalls, 1);
  void *p = mremap(from, CP_PAGE, CP_PAGE, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, to);
  map_at(from, CP_PAGE, PROT_NONE, -1, 0);
  map_at(to, CP_PAGE, PROT_NONE, -1, 0);
  return p != MAP_FAILED;
}

int cp_arenas_init(struct cp_arenas *a, size_t window, int device_fd, int lane_fd) {
  memset(a, 0, sizeof *a);
  if (!window || window % CP_GIB) {
    errno = EINVAL;
    return -1;
  }
  size_t span = window * CP_WINDOWS;
  char *r = mmap(NULL, 2 * span + CP_GIB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (r == MAP_FAILED) return -1;
  r = (char *)cp_round_up((size_t)r, CP_GIB);
  a->window = window;
  a->device_fd = device_fd;
  a->lane_fd = lane_fd;
  for (uint32_t i = 0; i < CP_WINDOWS; i++) {
    a->win[i].base = r + i * window;
    a->win[i].park = r + span + i * window;
  }
  a->parking = try_parking(a->win[0].base, a->win[0].park, device_fd);
  a->ephemeral = 1;
  if (window_start(a, 0, CP_PERSISTENT, device_fd, 0) || window_start(a, 1, CP_EPHEMERAL, lane_fd, 0)) return -1;
  a->lo = r;
  cp_store(&a->hi, r + span);
  return 0;
}

static int move_tables(char *from, char *to, size_t bytes) {
  cp_add(&cp_syscalls, 1);
  void *p = mremap(from, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, to);
  return p == MAP_FAILED ? -1 : 0;
}

static int protect(char *base, size_t bytes, int prot) {
  cp_add(&cp_syscalls, 1);
  return mprotect(base, bytes, prot);
}

int cp_arenas_close(struct cp_arenas *a) {
  uint32_t used = 0;
  for (uint32_t i = 0; i < CP_WINDOWS; i++) {
    struct cp_window *w = &a->win[i];
    if (w->kind == CP_UNUSED) continue;
    used = i + 1;
    if (a->parking && move_tables(w->base, w->park, a->window)) return -1;
  }
  /* A thread that touches a base until here reaches the same memory; now all are closed, in one step. */
  if (protect(a->win[0].base, used * a->window, PROT_NONE)) return -1;
  a->open = false;
  return 0;
}

int cp_arenas_open(struct cp_arenas *a) {
  for (uint32_t i = 0; i < CP_WINDOWS; i++) {
    struct cp_window *w = &a->win[i];
    if (w->kind == CP_UNUSED) continue;
    if (a->parking ? move_tables(w->park, w->base, a->window) : protect(w->base, a->window, PROT_READ | PROT_WRITE))
      return -1;
  }
  a->open = true;
  return 0;
}

int cp_arenas_set_lane(struct cp_arenas *a, int lane_fd) {
  struct cp_window *w = &a->win[a->ephemeral];
  if (!map_at(w->park, a->window, PROT_READ | PROT_WRITE, lane_fd, 0)) return -1;
  if (!map_at(w->base, a->window, PROT_NONE, lane_fd, 0)) return -1;
  w->fd = a->lane_fd = lane_fd;
  return 0;
}

size_t cp_arenas_persistent(const struct cp_arenas *a) {
  return cp_round_up(cp_pool_high(&a->win[0].pool) + a->retired, CP_PAGE);
}

/* ---- stores ------------------------------------------------------------------------------------------------------ */

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

static uint32_t first_block(const struct cp_pool *p) { return p->top ? p->at[0] : 0; }

int cp_store_collect(struct cp_store *s, const struct cp_arenas *a, uint32_t window) {
  const struct cp_pool *p = &a->win[window].pool;
  for (uint32_t i = first_block(p); i; i = p->block[i].next) {
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
  if (cp_store_collect(&a->residue, a, a->ephemeral)) return -1;
  return store_fill(&a->residue, a);
}

/* Blocks freed since, or allocated in their place, do not matter: what they hold is undefined until they are written,
 * and writing traps.  So this needs no lock of the allocator. */
void cp_arenas_restore_residue(struct cp_arenas *a) { store_empty(&a->residue, a); }

/* ---- persistent memory ------------------------------------------------------------------------------------------- */

static int punch(const struct cp_window *w, size_t start, size_t length) {
  if (!length) return 0;
  cp_add(&cp_syscalls, 1);
  return fallocate(w->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, w->offset + (off_t)start, (off_t)length);
}

int cp_arenas_offload(struct cp_arenas *a) {
  struct cp_store *s = &a->offloaded;
  cp_store_clear(s);
  for (uint32_t i = 0; i < CP_WINDOWS; i++)
    if ((a->win[i].kind == CP_PERSISTENT || a->win[i].kind == CP_RETIRED) && cp_store_collect(s, a, i)) return -1;
  if (store_fill(s, a)) return -1;
  for (uint32_t i = 0; i < CP_WINDOWS; i++)
    if (a->win[i].kind == CP_PERSISTENT || a->win[i].kind == CP_RETIRED) punch(&a->win[i], 0, a->window);
  return 0;
}

int cp_arenas_reload(struct cp_arenas *a) {
  store_empty(&a->offloaded, a);
  return 0;
}

/* Bytes of whole pages that hold at least one live block; punches the rest if asked to. */
static size_t coverage(const struct cp_window *w, bool punch_rest, size_t end) {
  const struct cp_pool *p = &w->pool;
  size_t covered = 0, reached = 0;
  for (uint32_t i = first_block(p); i; i = p->block[i].next) {
    if (!p->block[i].used) continue;
    size_t from = (size_t)p->block[i].start * CP_GRAIN / CP_PAGE * CP_PAGE;
    size_t to = cp_round_up(((size_t)p->block[i].start + p->block[i].size) * CP_GRAIN, CP_PAGE);
    if (from < reached) from = reached;
    if (from > reached && punch_rest) punch(w, reached, from - reached);
    if (to > from) covered += to - from;
    if (to > reached) reached = to;
  }
  if (punch_rest && end > reached) punch(w, reached, end - reached);
  return covered;
}

static uint32_t unused_window(const struct cp_arenas *a) {
  for (uint32_t i = 1; i < CP_WINDOWS; i++)
    if (a->win[i].kind == CP_UNUSED) return i;
  return 0;
}

int cp_write_all(int fd, const char *from, size_t length, off_t at) {
  while (length) {
    cp_add(&cp_syscalls, 1);
    ssize_t n = syscall(SYS_pwrite64, fd, from, length, at);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return -1;
    from += n;
    at += n;
    length -= (size_t)n;
  }
  return 0;
}

int64_t cp_arenas_retire(struct cp_arenas *a) {
  uint32_t old = a->ephemeral, fresh = unused_window(a);
  struct cp_window *w = &a->win[old];
  off_t offset = (off_t)(old * a->window);
  struct cp_store *s = &a->residue;
  cp_store_clear(s);
  if (!fresh || cp_store_collect(s, a, old)) return -1;
  int64_t moved = (int64_t)s->used;
  for (size_t i = 0; i < s->runs; i++)
    if (cp_write_all(a->device_fd, w->park + s->run[i].start, s->run[i].length, offset + (off_t)s->run[i].start)) return -1;
  cp_store_clear(s);
  if (window_start(a, fresh, CP_EPHEMERAL, a->lane_fd, 0)) {
    window_stop(a, fresh);
    return -1;
  }
  if (!map_at(w->park, a->window, PROT_READ | PROT_WRITE, a->device_fd, offset) ||
      !map_at(w->base, a->window, PROT_NONE, a->device_fd, offset))
    return -1;
  w->kind = CP_RETIRED;
  w->fd = a->device_fd;
  w->offset = offset;
  w->backed = coverage(w, false, 0);
  a->retired += w->backed;
  a->ephemeral = fresh;
  return moved;
}

size_t cp_arenas_trim(struct cp_arenas *a) {
  size_t before = cp_arenas_persistent(a);
  struct cp_window *p = &a->win[0];
  size_t top = cp_round_up(cp_pool_extent(&p->pool), CP_PAGE), high = cp_round_up(cp_pool_high(&p->pool), CP_PAGE);
  if (high > top) {
    punch(p, top, high - top);
    p->pool.high = p->pool.top;
  }
  for (uint32_t i = 1; i < CP_WINDOWS; i++) {
    struct cp_window *w = &a->win[i];
    if (w->kind != CP_RETIRED) continue;
    a->retired -= w->backed;
    w->backed = coverage(w, true, cp_round_up(cp_pool_high(&w->pool), CP_PAGE));
    a->retired += w->backed;
    if (!w->pool.blocks && !a->open) window_stop(a, i);
  }
  return before - cp_arenas_persistent(a);
}
