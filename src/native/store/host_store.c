#include "store/host_store.h"
#include "base/core_dump.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#define WORTH_POPULATING 16 /* pages */

/* ---- start --------------------------------------------------------------------------------------------------------- */

void *cp_zeroed(size_t bytes) {
  void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return p == MAP_FAILED ? NULL : p;
}

int cp_host_init(struct cp_host *h, size_t span, int fd) {
  char path[32];
  memset(h, 0, sizeof *h);
  size_t chunks = span / CP_CHUNK;
  if (!cp_has_bytes(fd, span + chunks)) return -1;
  char *p = mmap(NULL, span + chunks, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
  if (p == MAP_FAILED) return -1;
  cp_leave_out_of_cores(p, span + chunks);
  h->memory = p;
  h->state = (uint8_t *)p + span;
  h->shut = cp_zeroed(chunks);
  h->saved = cp_zeroed(chunks * sizeof *h->saved);
  h->zero = cp_zeroed(chunks * sizeof *h->zero);
  h->room = cp_zeroed(chunks * sizeof *h->room);
  h->fd = fd;
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  h->lock_fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC);
  h->tables_fd = (int)syscall(SYS_openat, AT_FDCWD, "/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
  if (!h->shut || !h->saved || !h->zero || !h->room || h->lock_fd < 0) return -1;
  h->chunks = chunks;
  return 0;
}

void cp_host_end(struct cp_host *h) {
  size_t chunks = h->chunks;
  if (!chunks) return;
  h->chunks = 0;
  munmap(h->memory, chunks * CP_CHUNK + chunks);
  munmap(h->shut, chunks);
  munmap(h->saved, chunks * sizeof *h->saved);
  munmap(h->zero, chunks * sizeof *h->zero);
  munmap(h->room, chunks * sizeof *h->room);
  for (int i = 0; i < 3; i++) syscall(SYS_close, (int[]){h->fd, h->lock_fd, h->tables_fd}[i]);
}

/* ---- the mover's lock ---------------------------------------------------------------------------------------------- */

static void set_lock(const struct cp_host *h, short type) {
  if (!h->chunks) return;
  struct flock whole = {.l_type = type, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};
  do cp_add(&cp_syscalls, 1);
  while (syscall(SYS_fcntl, h->lock_fd, F_OFD_SETLKW, &whole) && errno == EINTR);
}

void cp_host_lock(struct cp_host *h) { set_lock(h, F_WRLCK); }
void cp_host_unlock(struct cp_host *h) { set_lock(h, F_UNLCK); }

/* The child's descriptor is of the parent's description: its lock would outlive the parent. */
void cp_host_abandon(struct cp_host *h) {
  if (h->chunks) syscall(SYS_close, h->lock_fd);
  h->chunks = 0;
}

/* ---- what is where ------------------------------------------------------------------------------------------------- */

size_t cp_host_next(const struct cp_host *h, size_t chunk) {
  const uint8_t *p = chunk < h->chunks ? memchr(h->state + chunk, CP_IN_STORE, h->chunks - chunk) : NULL;
  return p ? (size_t)(p - h->state) : h->chunks;
}

static void set_state(struct cp_host *h, size_t chunk, uint8_t state) {
  __atomic_store_n(&h->state[chunk], state, __ATOMIC_RELEASE);
}

void cp_host_mark(struct cp_host *h, size_t chunk, size_t from, size_t to) {
  uint64_t *word = h->saved[chunk].word;
  while (from < to) {
    size_t end = (from | 63) + 1 < to ? (from | 63) + 1 : to, n = end - from;
    word[from / 64] |= (n == 64 ? UINT64_MAX : (1ull << n) - 1) << from % 64;
    from = end;
  }
}

void cp_host_unmark(struct cp_host *h, size_t chunk) {
  memset(&h->saved[chunk], 0, sizeof h->saved[chunk]);
  memset(&h->zero[chunk], 0, sizeof h->zero[chunk]);
}

bool cp_host_taken(const struct cp_host *h) {
  size_t k = cp_host_next(h, 0);
  while (k < h->chunks && cp_host_marked(h, k)) k = cp_host_next(h, k + 1);
  return k < h->chunks;
}

/* First page at or after `page` whose bit is `set`. */
static size_t find_page(const struct cp_pages *pages, size_t page, bool set) {
  for (; page < CP_CHUNK_PAGES; page = (page | 63) + 1) {
    uint64_t word = (set ? pages->word[page / 64] : ~pages->word[page / 64]) >> page % 64;
    if (word) return page + (size_t)__builtin_ctzll(word);
  }
  return CP_CHUNK_PAGES;
}

static bool find_run(const struct cp_pages *pages, size_t *from, size_t *to) {
  *from = find_page(pages, *from, true);
  *to = find_page(pages, *from, false);
  return *from < CP_CHUNK_PAGES;
}

bool cp_host_run(const struct cp_host *h, size_t chunk, size_t *from, size_t *to) {
  return find_run(&h->saved[chunk], from, to);
}

uint64_t cp_host_bytes(const struct cp_host *h, size_t chunk) {
  uint64_t pages = 0;
  for (size_t i = 0; i < CP_PAGE_WORDS; i++) pages += (uint64_t)__builtin_popcountll(h->saved[chunk].word[i]);
  return pages * CP_PAGE;
}

/* ---- memory of the store ------------------------------------------------------------------------------------------- */

static int change(const struct cp_host *h, int mode, size_t at, size_t bytes) {
  int r;
  do {
    cp_add(&cp_syscalls, 1);
    r = fallocate(h->fd, mode, (off_t)at, (off_t)bytes);
  } while (r && errno == EINTR);
  return r;
}

/* Asked for beforehand: a write into a hole for which there is no memory would kill the job. */
int cp_host_reserve(struct cp_host *h, size_t chunk) {
  struct cp_span *room = &h->room[chunk];
  size_t from = 0, to, low = CP_CHUNK_PAGES, high = 0;
  for (; cp_host_run(h, chunk, &from, &to); from = to) {
    if (from < low) low = from;
    high = to;
  }
  if (low >= high || (room->to && room->from <= low && room->to >= high)) return 0;
  if (room->to && room->from < low) low = room->from;
  if (room->to > high) high = room->to;
  size_t at = (size_t)(h->state - (uint8_t *)h->memory) + chunk; /* its state byte needs memory, too */
  if (change(h, 0, at, 1) || change(h, 0, chunk * CP_CHUNK + low * CP_PAGE, (high - low) * CP_PAGE)) return -1;
  *room = (struct cp_span){(uint16_t)low, (uint16_t)high};
  return 0;
}

void cp_host_drop(struct cp_host *h, size_t chunk) {
  if (!h->room[chunk].to || cp_host_has(h, chunk)) return;
  change(h, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, chunk * CP_CHUNK, CP_CHUNK);
  h->room[chunk] = (struct cp_span){0, 0};
}

void cp_host_drop_all(struct cp_host *h) {
  change(h, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, h->chunks * CP_CHUNK);
  memset(h->room, 0, h->chunks * sizeof *h->room);
}

uint64_t cp_host_memory(const struct cp_host *h) {
  struct stat s;
  cp_add(&cp_syscalls, 1);
  return cp_fstat(h->fd, &s) ? 0 : (uint64_t)s.st_blocks * 512;
}

/* ---- copies ---------------------------------------------------------------------------------------------------------- */

/* Whole pages.  Past the caches: a chunk is too small for memcpy to do so by itself, which costs a third of the rate.
 * Four pages at a time keep several banks of the memory busy. */
static void copy_pages(char *restrict to, const char *restrict from, size_t bytes) {
#ifdef __SSE2__
  size_t quads = bytes / (4 * CP_PAGE) * (4 * CP_PAGE);
  for (size_t quad = 0; quad < quads; quad += 4 * CP_PAGE)
    for (size_t line = quad; line < quad + CP_PAGE; line += 64)
      for (size_t at = line; at < line + 4 * CP_PAGE; at += CP_PAGE) {
        __builtin_prefetch(from + at + 64);
        const __m128i *source = (const __m128i *)(const void *)(from + at);
        __m128i a = _mm_load_si128(source), b = _mm_load_si128(source + 1), c = _mm_load_si128(source + 2),
                d = _mm_load_si128(source + 3);
        __m128i *target = (__m128i *)(void *)(to + at);
        _mm_stream_si128(target, a);
        _mm_stream_si128(target + 1, b);
        _mm_stream_si128(target + 2, c);
        _mm_stream_si128(target + 3, d);
      }
  _mm_sfence();
  to += quads;
  from += quads;
  bytes -= quads;
#endif
  memcpy(to, from, bytes);
}

static bool is_zero(const char *page) {
  return !*(const uint64_t *)(const void *)page && !memcmp(page, page + 8, CP_PAGE - 8);
}

/* The next run of pages of a chunk that the file has, from `from` on; what it lacks is zero, and would exist once read. */
static void next_data(int fd, size_t chunk, size_t *from, size_t *to) {
  off_t start = (off_t)(chunk * CP_CHUNK), end = start + (off_t)CP_CHUNK, data, hole = end;
  cp_add(&cp_syscalls, 1);
  data = lseek(fd, start + (off_t)(*from * CP_PAGE), SEEK_DATA);
  if (data < 0) data = errno == ENXIO ? end : start + (off_t)(*from * CP_PAGE);
  if (data < end) {
    cp_add(&cp_syscalls, 1);
    hole = lseek(fd, data, SEEK_HOLE);
  }
  *from = (size_t)((data < end ? data : end) - start) / CP_PAGE;
  *to = (size_t)((hole > data && hole < end ? hole : end) - start) / CP_PAGE;
}

void cp_host_leave_zeros(struct cp_host *h, size_t chunk, const char *at, int fd) {
  uint64_t left = cp_host_bytes(h, chunk) / CP_PAGE;
  size_t data = 0, hole = 0;
  for (size_t from = 0, to; cp_host_run(h, chunk, &from, &to); from = to)
    for (size_t page = from; page < to && left > 1; page++) {
      if (page >= hole) data = page, next_data(fd, chunk, &data, &hole);
      if (page < data || is_zero(at + page * CP_PAGE)) {
        h->saved[chunk].word[page / 64] &= ~(1ull << page % 64);
        h->zero[chunk].word[page / 64] |= 1ull << page % 64;
        left--;
      }
    }
}

void cp_host_save(struct cp_host *h, size_t chunk, const char *at) {
  char *place = h->memory + chunk * CP_CHUNK;
  for (size_t from = 0, to; cp_host_run(h, chunk, &from, &to); from = to)
    copy_pages(place + from * CP_PAGE, at + from * CP_PAGE, (to - from) * CP_PAGE);
  h->stored += cp_host_bytes(h, chunk);
  set_state(h, chunk, CP_IN_STORE);
}

/* Is there a page table entry?  Unknown counts as yes. */
static bool present(const struct cp_host *h, const char *p) {
  uint64_t entry;
  if (h->tables_fd < 0) return true;
  cp_add(&cp_syscalls, 1);
  long n = syscall(SYS_pread64, h->tables_fd, &entry, sizeof entry, (off_t)((uintptr_t)p / CP_PAGE * sizeof entry));
  return n != (long)sizeof entry || entry >> 63;
}

/* Entries are kept from one restore to the next, unless the device buffer is another or was emptied.  One call is
 * several times as fast as 512 faults where the pages exist. */
static void populate(const struct cp_host *h, char *from, size_t bytes) {
  if (bytes < WORTH_POPULATING * CP_PAGE || (present(h, from) && present(h, from + bytes - CP_PAGE))) return;
  cp_add(&cp_syscalls, 1);
  cp_madvise(from, bytes, MADV_POPULATE_WRITE); /* where it is not supported the copy faults */
}

/* Others have used the device buffer since. */
static void clear(char *from, size_t bytes) {
  if (bytes >= WORTH_POPULATING * CP_PAGE) {
    cp_add(&cp_syscalls, 1);
    if (!cp_madvise(from, bytes, MADV_REMOVE)) return; /* the pages come back when they are used */
  }
  memset(from, 0, bytes);
}

void cp_host_restore(struct cp_host *h, size_t chunk, char *at) {
  const char *place = h->memory + chunk * CP_CHUNK;
  for (size_t from = 0, to; cp_host_run(h, chunk, &from, &to); from = to) {
    populate(h, at + from * CP_PAGE, (to - from) * CP_PAGE);
    copy_pages(at + from * CP_PAGE, place + from * CP_PAGE, (to - from) * CP_PAGE);
  }
  for (size_t from = 0, to; find_run(&h->zero[chunk], &from, &to); from = to)
    clear(at + from * CP_PAGE, (to - from) * CP_PAGE);
  uint64_t bytes = cp_host_bytes(h, chunk);
  set_state(h, chunk, CP_IN_DEVICE);
  h->stored -= bytes < h->stored ? bytes : h->stored;
  cp_host_unmark(h, chunk);
}

void cp_host_learn(struct cp_host *h, size_t chunk) {
  off_t start = (off_t)(chunk * CP_CHUNK), end = start + (off_t)CP_CHUNK, at = start;
  while (at < end && (at = lseek(h->fd, at, SEEK_DATA)) >= 0 && at < end) {
    off_t hole = lseek(h->fd, at, SEEK_HOLE);
    if (hole < 0 || hole > end) hole = end;
    cp_host_mark(h, chunk, (size_t)(at - start) / CP_PAGE, (size_t)(hole - start + (off_t)CP_PAGE - 1) / CP_PAGE);
    at = hole;
  }
  h->stored += cp_host_bytes(h, chunk);
}
