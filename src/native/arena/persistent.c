/* Persistent content: to the host store and back, out of the ephemeral arena, and pages that are needed no longer. */
#include "arena/arena.h"

#include <fcntl.h>
#include <string.h>

static uint32_t first_used(const struct cp_pool *p, uint32_t i) {
  while (i && !p->block[i].used) i = p->block[i].next;
  return i;
}

bool cp_live_pages(const struct cp_pool *p, uint32_t *i, size_t *from, size_t *to) {
  *i = first_used(p, *i);
  if (!*i) return false;
  *from = (size_t)p->block[*i].start * CP_GRAIN / CP_PAGE * CP_PAGE;
  for (*to = *from; *i; *i = first_used(p, p->block[*i].next)) {
    const struct cp_block *b = &p->block[*i];
    if (*to > *from && (size_t)b->start * CP_GRAIN / CP_PAGE * CP_PAGE > *to) break;
    *to = cp_round_up(((size_t)b->start + b->size) * CP_GRAIN, CP_PAGE);
  }
  return true;
}

/* ---- pages that are not needed -------------------------------------------------------------------------------------- */

/* Looks first: punching takes a lock that all users of the file share, and most often there is nothing. */
void cp_punch(const struct cp_arenas *a, uint32_t window, size_t start, size_t end) {
  off_t at = (off_t)(window * a->window + start), stop = (off_t)(window * a->window + end);
  if (start >= end) return;
  cp_add(&cp_syscalls, 1);
  at = lseek(a->device_fd, at, SEEK_DATA);
  if (at < 0 || at >= stop) return;
  cp_add(&cp_syscalls, 1);
  fallocate(a->device_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at, stop - at);
}

/* Bytes of whole pages that hold at least one live block; punches the rest if asked to. */
static size_t coverage(const struct cp_arenas *a, uint32_t window, bool punch_rest) {
  const struct cp_pool *p = &a->win[window].pool;
  size_t covered = 0, reached = 0, from, to;
  for (uint32_t i = cp_pool_first(p); cp_live_pages(p, &i, &from, &to); reached = to) {
    covered += to - from;
    if (punch_rest) cp_punch(a, window, reached, from);
  }
  if (punch_rest) cp_punch(a, window, reached, a->window);
  return covered;
}

void cp_arenas_drop_dead(const struct cp_arenas *a) {
  for (uint32_t i = 0; i < CP_WINDOWS; i++)
    if (cp_arenas_moves(a, i)) coverage(a, i, true);
}

size_t cp_arenas_trim(struct cp_arenas *a) {
  size_t before = cp_arenas_persistent(a);
  struct cp_pool *p = &a->win[0].pool;
  cp_punch(a, 0, cp_round_up(cp_pool_extent(p), CP_PAGE), a->window);
  p->high = p->top;
  for (uint32_t i = 1; i < CP_WINDOWS; i++) {
    struct cp_window *w = &a->win[i];
    if (w->kind != CP_RETIRED) continue;
    a->retired -= w->backed;
    w->backed = coverage(a, i, true);
    a->retired += w->backed;
    if (!w->pool.blocks && !a->open) cp_arenas_stop_window(a, i);
  }
  return before - cp_arenas_persistent(a);
}

/* ---- to the store and back --------------------------------------------------------------------------------------------- */

void cp_arenas_note_alive(struct cp_arenas *a) {
  struct cp_host *h = &a->host;
  for (uint32_t w = 0; w < CP_WINDOWS && h->chunks; w++) {
    if (!cp_arenas_moves(a, w)) continue;
    const struct cp_pool *p = &a->win[w].pool;
    size_t from, to;
    for (uint32_t i = cp_pool_first(p); cp_live_pages(p, &i, &from, &to);)
      for (size_t at = w * a->window + from, end = w * a->window + to, next; at < end; at = next) {
        size_t chunk = at / CP_CHUNK, start = chunk * CP_CHUNK;
        next = start + CP_CHUNK < end ? start + CP_CHUNK : end;
        if (!cp_host_has(h, chunk)) cp_host_mark(h, chunk, (at - start) / CP_PAGE, (next - start) / CP_PAGE);
      }
  }
}

/* Chunks that are noted and not yet in the store, from `chunk` on; h->chunks: no more. */
static size_t next_noted(const struct cp_arenas *a, size_t chunk) {
  const struct cp_host *h = &a->host;
  size_t per_window = a->window / CP_CHUNK;
  for (; chunk < h->chunks; chunk++) {
    uint32_t w = (uint32_t)(chunk / per_window);
    size_t high = cp_round_up(cp_pool_high(&a->win[w].pool), CP_CHUNK) / CP_CHUNK;
    if (!cp_arenas_moves(a, w) || chunk % per_window >= high)
      chunk = (w + 1) * per_window - 1; /* nothing from here on in this window */
    else if (!cp_host_has(h, chunk) && cp_host_marked(h, chunk))
      return chunk;
  }
  return h->chunks;
}

int cp_arenas_offload(struct cp_arenas *a) {
  struct cp_host *h = &a->host;
  size_t chunk;
  for (chunk = next_noted(a, 0); chunk < h->chunks; chunk = next_noted(a, chunk + 1))
    cp_host_leave_zeros(h, chunk, cp_arenas_parked(a, chunk), a->device_fd);
  for (chunk = next_noted(a, 0); chunk < h->chunks; chunk = next_noted(a, chunk + 1))
    if (cp_host_reserve(h, chunk)) {
      int error = errno;
      for (chunk = next_noted(a, 0); chunk < h->chunks; chunk = next_noted(a, chunk + 1)) {
        cp_host_unmark(h, chunk);
        cp_host_drop(h, chunk); /* memory is short: worthless copies go first */
      }
      errno = error;
      return -1;
    }
  for (chunk = next_noted(a, 0); chunk < h->chunks; chunk = next_noted(a, chunk + 1))
    cp_host_save(h, chunk, cp_arenas_parked(a, chunk));
  return 0;
}

size_t cp_arenas_recount(struct cp_arenas *a) {
  struct cp_host *h = &a->host;
  size_t count = 0;
  h->stored = 0;
  for (size_t k = cp_host_next(h, 0); k < h->chunks; k = cp_host_next(h, k + 1)) {
    if (!cp_arenas_moves(a, (uint32_t)(k * CP_CHUNK / a->window))) { /* taken from outside, and none of ours */
      cp_host_unmark(h, k);
      cp_host_restore(h, k, NULL);
      continue;
    }
    count++;
    if (cp_host_marked(h, k))
      h->stored += cp_host_bytes(h, k);
    else
      cp_host_learn(h, k);
  }
  return count;
}

size_t cp_arenas_restore_begin(struct cp_arenas *a) {
  struct cp_host *h = &a->host;
  size_t count = cp_arenas_recount(a);
  for (size_t k = 0; h->shut_chunks && k < h->chunks; k++) h->shut_chunks -= h->shut[k], h->shut[k] = 0;
  for (size_t k = 0, n = 0; n < count; n++, k++) {
    k = cp_host_next(h, k);
    cp_arenas_shut(a, k);
  }
  return count;
}

void cp_arenas_bring(struct cp_arenas *a, size_t chunk) { cp_host_restore(&a->host, chunk, cp_arenas_parked(a, chunk)); }

/* A window whose pages count needs those that are to be restored and no others. */
static void clear_window(struct cp_arenas *a, uint32_t window) {
  size_t per_window = a->window / CP_CHUNK, reached = 0;
  for (size_t k = 0; k < per_window; k++)
    for (size_t from = 0, to; cp_host_run(&a->host, window * per_window + k, &from, &to); from = to) {
      cp_punch(a, window, reached, k * CP_CHUNK + from * CP_PAGE);
      reached = k * CP_CHUNK + to * CP_PAGE;
    }
  cp_punch(a, window, reached, a->window);
}

void cp_arenas_clear_buffer(struct cp_arenas *a, size_t room) {
  size_t kept = cp_round_up(cp_pool_high(&a->win[0].pool), CP_PAGE);
  if (kept < room) kept = room / CP_PAGE * CP_PAGE;
  if (!a->packed) cp_punch(a, 0, kept, a->window);
  for (uint32_t i = !a->packed; i < CP_WINDOWS; i++) {
    if (cp_arenas_moves(a, i))
      clear_window(a, i);
    else
      cp_punch(a, i, 0, a->window);
  }
}

/* ---- out of the ephemeral arena ----------------------------------------------------------------------------------------- */

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
  if (cp_arenas_retire_window(a, fresh)) return -1;
  w->backed = coverage(a, old, false);
  a->retired += w->backed;
  return moved;
}
