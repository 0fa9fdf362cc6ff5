#include "arena/arena.h"
#include "base/core_dump.h"

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
  if (p == MAP_FAILED) return NULL;
  if (fd >= 0) cp_leave_out_of_cores(p, bytes);
  return p;
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

/* Addresses from a multiple of 1 GiB on; NULL: there are not so many. */
static char *reserve_aligned(size_t bytes) {
  char *all = mmap(NULL, bytes + CP_GIB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (all == MAP_FAILED) return NULL;
  char *r = (char *)cp_round_up((size_t)all, CP_GIB);
  if (r > all) munmap(all, (size_t)(r - all));
  munmap(r + bytes, CP_GIB - (size_t)(r - all));
  return r;
}

int cp_arenas_init(struct cp_arenas *a, size_t window, int device_fd, int lane_fd) {
  memset(a, 0, sizeof *a);
  if (!window || window % CP_GIB || window > CP_LARGEST_WINDOW) {
    errno = EINVAL;
    return -1;
  }
  size_t span = window * CP_WINDOWS;
  char *r = reserve_aligned(2 * span);
  if (!r) return -1;
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
  cp_store(&a->span, span);
  return 0;
}

void cp_arenas_end(struct cp_arenas *a) {
  cp_store(&a->span, 0);
  for (uint32_t i = 0; i < CP_WINDOWS; i++)
    if (a->win[i].kind != CP_UNUSED) cp_pool_destroy(&a->win[i].pool);
  munmap(a->win[0].base, 2 * CP_WINDOWS * a->window);
  syscall(SYS_close, a->device_fd);
  syscall(SYS_close, a->lane_fd);
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

/* One mapping unless the kernel sees several: older ones do not join pieces that were moved one by one. */
static int move_chunks(char *from, char *to, size_t bytes) {
  if (!move_tables(from, to, bytes)) return 0;
  if (errno != EFAULT || bytes <= CP_CHUNK) return -1;
  for (size_t at = 0; at < bytes; at += CP_CHUNK)
    if (move_tables(from + at, to + at, CP_CHUNK)) return -1;
  return 0;
}

/* ---- open and closed ----------------------------------------------------------------------------------------------- */

/* The next run of bytes of window i, at or after *start, whose chunks are not shut; false: there is none. */
static bool next_run(const struct cp_arenas *a, uint32_t i, size_t *start, size_t *end) {
  const struct cp_host *h = &a->host;
  if (!h->shut_chunks) {
    *end = a->window;
    return *start < a->window;
  }
  size_t count = a->window / CP_CHUNK, first = *start / CP_CHUNK;
  const uint8_t *shut = h->shut + i * count;
  while (first < count && shut[first]) first++;
  const uint8_t *stop = first < count ? memchr(shut + first, 1, count - first) : NULL;
  *start = first * CP_CHUNK;
  *end = stop ? (size_t)(stop - shut) * CP_CHUNK : a->window;
  return first < count;
}

static int open_range(struct cp_arenas *a, uint32_t i, size_t start, size_t bytes) {
  struct cp_window *w = &a->win[i];
  if (a->parking) return move_chunks(w->park + start, w->base + start, bytes);
  return protect(w->base + start, bytes, PROT_READ | PROT_WRITE);
}

/* A range that was closed by half has left its protection behind the parking range. */
static int mend(struct cp_arenas *a, uint32_t used) {
  for (uint32_t i = 0; i < used; i++)
    if (a->win[i].kind != CP_UNUSED && protect(a->win[i].park, a->window, PROT_READ | PROT_WRITE)) return -1;
  a->torn = false;
  return 0;
}

int cp_arenas_close(struct cp_arenas *a) {
  uint32_t used = 0;
  for (uint32_t i = 0; i < CP_WINDOWS; i++) {
    struct cp_window *w = &a->win[i];
    if (w->kind == CP_UNUSED) continue;
    used = i + 1;
    for (size_t start = 0, end; a->parking && next_run(a, i, &start, &end); start = end)
      if (move_chunks(w->base + start, w->park + start, end - start)) {
        a->torn = true;
        return -1;
      }
  }
  /* A thread that touches a base until here reaches the same memory; now all are closed, in one step. */
  if (protect(a->win[0].base, used * a->window, PROT_NONE)) return -1;
  a->open = false;
  return a->torn ? mend(a, used) : 0;
}

int cp_arenas_open(struct cp_arenas *a) {
  a->open = true; /* or half open: to be closed in any case */
  for (uint32_t i = 0; i < CP_WINDOWS; i++) {
    if (a->win[i].kind == CP_UNUSED) continue;
    for (size_t start = 0, end; next_run(a, i, &start, &end); start = end)
      if (open_range(a, i, start, end - start)) {
        a->torn = true;
        return -1;
      }
  }
  return 0;
}

void cp_arenas_shut(struct cp_arenas *a, size_t chunk) {
  cp_put(&a->host.shut_chunks, a->host.shut_chunks + !a->host.shut[chunk]); /* read without the lock */
  __atomic_store_n(&a->host.shut[chunk], 1, __ATOMIC_RELEASE);
}

int cp_arenas_admit(struct cp_arenas *a, size_t chunk, size_t count) {
  uint32_t i = (uint32_t)(chunk * CP_CHUNK / a->window);
  if (a->open && open_range(a, i, chunk * CP_CHUNK - i * a->window, count * CP_CHUNK)) {
    a->torn = true;
    return -1;
  }
  for (size_t k = chunk; k < chunk + count; k++) {
    cp_put(&a->host.shut_chunks, a->host.shut_chunks - a->host.shut[k]);
    __atomic_store_n(&a->host.shut[k], 0, __ATOMIC_RELEASE);
  }
  return 0;
}

/* ---- another file behind a window ---------------------------------------------------------------------------------- */

int cp_arenas_set_file(struct cp_arenas *a, uint32_t i, int fd, off_t offset) {
  struct cp_window *w = &a->win[i];
  if (!map_at(w->park, a->window, PROT_READ | PROT_WRITE, fd, offset)) return -1;
  if (!map_at(w->base, a->window, PROT_NONE, fd, offset)) return -1;
  w->fd = fd;
  w->offset = offset;
  return 0;
}

int cp_arenas_set_lane(struct cp_arenas *a, int lane_fd) {
  a->lane_fd = lane_fd;
  return a->packed ? 0 : cp_arenas_set_file(a, a->ephemeral, lane_fd, 0);
}

int cp_arenas_set_buffer(struct cp_arenas *a, int device_fd) {
  a->device_fd = device_fd;
  for (uint32_t i = 0; i < CP_WINDOWS; i++)
    if (cp_arenas_moves(a, i) && cp_arenas_set_file(a, i, device_fd, a->win[i].offset)) return -1;
  return 0;
}

int cp_arenas_retire_window(struct cp_arenas *a, uint32_t fresh) {
  struct cp_window *w = &a->win[a->ephemeral];
  if (window_start(a, fresh, CP_EPHEMERAL, a->lane_fd, 0)) {
    window_stop(a, fresh);
    return -1;
  }
  if (cp_arenas_set_file(a, a->ephemeral, a->device_fd, (off_t)(a->ephemeral * a->window))) return -1;
  w->kind = CP_RETIRED;
  a->ephemeral = fresh;
  return 0;
}

void cp_arenas_stop_window(struct cp_arenas *a, uint32_t i) { window_stop(a, i); }

size_t cp_arenas_persistent(const struct cp_arenas *a) {
  if (a->counted.bits) return a->counted.bytes;
  return cp_round_up(cp_pool_high(&a->win[0].pool) + a->retired, CP_PAGE);
}
