/* Packed arenas: what a job that has been refused memory has left of its own.
 *
 * Usually a limit says how far an arena reaches, and so free blocks between live ones count.  That costs nothing while there
 * is memory, and keeps the lane in one piece.  In packed arenas every page counts that may hold memory, in all windows
 * together; a page that holds no live block is given back when another one is needed.  The ephemeral window then lies in the
 * device buffer, whose pages exist one by one.  No block moves. */
#include "arena/arena.h"

#include <string.h>
#include <sys/mman.h>

static size_t pages_of(const struct cp_arenas *a) { return a->window / CP_PAGE; }

static bool is_counted(const struct cp_arenas *a, size_t page) {
  return cp_relaxed(&a->counted.bits[page / 64]) >> page % 64 & 1;
}

static void set_counted(struct cp_arenas *a, size_t page, bool counted) {
  uint64_t *word = &a->counted.bits[page / 64], bit = 1ull << page % 64;
  cp_put(word, counted ? *word | bit : *word & ~bit);
  a->counted.bytes += counted ? CP_PAGE : -CP_PAGE;
}

/* Does the window hold blocks whose pages count? */
static bool in_use(const struct cp_arenas *a, uint32_t i) { return a->win[i].kind != CP_UNUSED; }

size_t cp_arenas_covered(const struct cp_arenas *a) {
  size_t covered = 0, from, to;
  for (uint32_t w = 0; w < CP_WINDOWS; w++) {
    if (!in_use(a, w)) continue;
    const struct cp_pool *p = &a->win[w].pool;
    for (uint32_t i = cp_pool_first(p); cp_live_pages(p, &i, &from, &to);) covered += to - from;
  }
  return covered;
}

int cp_arenas_count_pages(struct cp_arenas *a) {
  size_t bytes = CP_WINDOWS * pages_of(a) / 8, from, to;
  void *bits = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (bits == MAP_FAILED) return -1;
  a->counted = (struct cp_counted){bits, 0};
  for (uint32_t w = 0; w < CP_WINDOWS; w++) {
    if (!in_use(a, w)) continue;
    const struct cp_pool *p = &a->win[w].pool;
    for (uint32_t i = cp_pool_first(p); cp_live_pages(p, &i, &from, &to);) cp_arenas_count(a, p->base + from, to - from);
  }
  return 0;
}

/* The pages of a block, numbered over all windows: the first one, and the one behind the last. */
static size_t first_page(const struct cp_arenas *a, const void *block) {
  return (size_t)((const char *)block - a->lo) / CP_PAGE;
}

static size_t end_page(const struct cp_arenas *a, const void *block, size_t bytes) {
  return cp_round_up((size_t)((const char *)block - a->lo) + bytes, CP_PAGE) / CP_PAGE;
}

size_t cp_arenas_uncounted(const struct cp_arenas *a, const void *block, size_t bytes) {
  size_t count = 0, end = end_page(a, block, bytes);
  for (size_t page = first_page(a, block); page < end; page++) count += !is_counted(a, page);
  return count * CP_PAGE;
}

void cp_arenas_count(struct cp_arenas *a, const void *block, size_t bytes) {
  size_t end = end_page(a, block, bytes);
  for (size_t page = first_page(a, block); page < end; page++)
    if (!is_counted(a, page)) set_counted(a, page, true);
}

/* ---- giving pages back ------------------------------------------------------------------------------------------------ */

/* May the page be taken away?  A chunk that is still in the host store comes back with its dead pages. */
static bool may_go(const struct cp_arenas *a, uint32_t window, size_t at) {
  return is_counted(a, window * pages_of(a) + at / CP_PAGE) && !cp_host_has(&a->host, (window * a->window + at) / CP_CHUNK);
}

/* Of a range without live blocks, until it is `wanted` bytes. */
static size_t reclaim_range(struct cp_arenas *a, uint32_t window, size_t start, size_t end, size_t wanted) {
  size_t given = 0;
  for (size_t at = start, from; at < end && given < wanted;) {
    for (from = at; at < end && given < wanted && may_go(a, window, at); at += CP_PAGE, given += CP_PAGE)
      set_counted(a, window * pages_of(a) + at / CP_PAGE, false);
    cp_punch(a, window, from, at);
    if (at == from) at += CP_PAGE;
  }
  return given;
}

static size_t reclaim_window(struct cp_arenas *a, uint32_t window, size_t wanted) {
  const struct cp_pool *p = &a->win[window].pool;
  size_t given = 0, reached = 0, from, to;
  for (uint32_t i = cp_pool_first(p); given < wanted && cp_live_pages(p, &i, &from, &to); reached = to)
    given += reclaim_range(a, window, reached, from, wanted - given);
  size_t high = cp_round_up(cp_pool_high(p), CP_PAGE);
  return given + (given < wanted ? reclaim_range(a, window, reached, high, wanted - given) : 0);
}

size_t cp_arenas_reclaim(struct cp_arenas *a, size_t bytes) {
  size_t given = 0;
  for (uint32_t w = 0; w < CP_WINDOWS && given < bytes; w++)
    if (in_use(a, w)) given += reclaim_window(a, w, bytes - given);
  return given;
}

/* What the window holds beside pages that count, from the time when extents counted. */
static void punch_uncounted(const struct cp_arenas *a, uint32_t window) {
  size_t first = window * pages_of(a), high = cp_round_up(cp_pool_high(&a->win[window].pool), CP_PAGE) / CP_PAGE;
  for (size_t page = 0, from; page < high;) {
    for (from = page; page < high && !is_counted(a, first + page);) page++;
    cp_punch(a, window, from * CP_PAGE, page * CP_PAGE);
    while (page < high && is_counted(a, first + page)) page++;
  }
  cp_punch(a, window, high * CP_PAGE, a->window);
}

int cp_arenas_pack(struct cp_arenas *a) {
  if (cp_arenas_set_file(a, a->ephemeral, a->device_fd, (off_t)(a->ephemeral * a->window))) return -1;
  a->packed = true;
  for (uint32_t w = 0; w < CP_WINDOWS; w++)
    if (in_use(a, w)) punch_uncounted(a, w);
  return 0;
}
