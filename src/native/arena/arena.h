/* Folder arena/: the memory of tensors on the host device: windows of addresses, the allocator of blocks in them (which
 * CUDA's memory by grant uses, too), and the residue that outlives a turn.  What changes mappings or blocks enters.
 * May include: base, store. */
/* Arenas: ranges of virtual addresses that never move, whose memory is granted and revoked.
 *
 * The process reserves CP_WINDOWS windows of equal size (whole GiB) and, for each, a *parking* range of the same
 * size.  A window is open (its base range is readable and writable) or closed (its base range is PROT_NONE).  The
 * memory stays reachable for libcarpool through the parking range while the window is closed: closing moves the page
 * tables there with mremap(MREMAP_DONTUNMAP), which costs microseconds for whole GiB and loses no page table entry.
 *
 * Window 0 is the persistent arena.  One other window is the ephemeral arena, mapped on the lane.  The rest are
 * unused, or *retired*: former ephemeral arenas whose survivors were moved to persistent memory at the same address.
 *
 * The persistent and the retired windows lie in a device buffer, which other jobs use while this one's content is in
 * the host store (store/host_store.h).  On its way back the content is opened piece by piece: chunks that are *shut*
 * stay closed when their window is opened. */
#ifndef CARPOOL_ARENA_H
#define CARPOOL_ARENA_H
#include "base/common.h"
#include "store/host_store.h"
#include "arena/pool.h"

#define CP_WINDOWS 16
#define CP_LARGEST_WINDOW ((size_t)1 << 40) /* bytes: the pool's limit */

enum cp_kind { CP_UNUSED = 0, CP_PERSISTENT, CP_EPHEMERAL, CP_RETIRED };

struct cp_window {
  enum cp_kind kind;
  char *base, *park;
  int fd;        /* descriptor behind it (not owned) */
  off_t offset;  /* of the window in that descriptor */
  size_t backed; /* persistent kinds: bytes that are backed (page granularity) */
  struct cp_pool pool;
};

/* A run of bytes that must survive: live blocks that touch each other. */
struct cp_run {
  uint32_t window;
  uint64_t start, length; /* bytes, from the window's base */
  uint64_t saved;         /* offset in the store */
};

/* Saved bytes: a private mapping that is kept, so that its pages stay warm. */
struct cp_store {
  char *memory;
  size_t capacity, used;
  struct cp_run *run;
  size_t runs, run_capacity;
};

/* Pages of all windows that may hold memory, one bit each.  Pool lock held to change them. */
struct cp_counted {
  uint64_t *bits; /* NULL: extents count */
  size_t bytes;   /* of the pages with a bit */
};

struct cp_arenas {
  char *lo; /* all base ranges, and their bytes; 0: it holds nothing */
  size_t span;
  size_t window; /* bytes per window */
  int device_fd, lane_fd;
  uint32_t ephemeral;  /* index of the present ephemeral window */
  bool parking;        /* mremap(MREMAP_DONTUNMAP) works here; otherwise mprotect over a second mapping */
  bool open;    /* wholly or by half */
  bool torn;    /* by half: opening or closing has failed on the way */
  size_t retired; /* bytes backed in retired windows */
  struct cp_counted counted; /* pages instead of extents, from when the arenas are packed */
  bool packed;    /* the ephemeral window lies in the device buffer, too, and moves with the persistent ones */
  struct cp_window win[CP_WINDOWS];
  struct cp_store residue; /* ephemeral bytes saved at a switch */
  struct cp_host host;     /* persistent bytes saved by an offload */
};

/* All return 0, or -1 with errno, unless said otherwise. */
int cp_arenas_init(struct cp_arenas *a, size_t window, int device_fd, int lane_fd);
/* Arenas in which nothing has been allocated.  The descriptors are closed. */
void cp_arenas_end(struct cp_arenas *a);
/* Close first: nothing can touch the memory any more but through the parking ranges. */
int cp_arenas_close(struct cp_arenas *a);
int cp_arenas_open(struct cp_arenas *a);
/* Closed arenas only. */
int cp_arenas_set_lane(struct cp_arenas *a, int lane_fd);
int cp_arenas_save_residue(struct cp_arenas *a);
void cp_arenas_restore_residue(struct cp_arenas *a);
/* The content of the persistent kinds must be in the store. */
int cp_arenas_set_buffer(struct cp_arenas *a, int device_fd);
/* Move everything alive in the ephemeral window to persistent memory at the same addresses; a fresh window takes its
 * place on the lane.  Returns bytes moved, or -1 if no window is left or memory failed (nothing has changed then). */
int64_t cp_arenas_retire(struct cp_arenas *a);
/* Give back pages of persistent kinds that hold no live block.  Returns bytes given back. */
size_t cp_arenas_trim(struct cp_arenas *a);
/* The same for every page, without changing what must be granted. */
void cp_arenas_drop_dead(const struct cp_arenas *a);

/* ---- moving persistent content; mover's lock held ---- */

/* Closed arenas.  Note which pages are alive (needs the allocator's lock), then copy them to the store.  What is there
 * already stays.  -1: there is no memory for them and nothing has changed. */
void cp_arenas_note_alive(struct cp_arenas *a);
int cp_arenas_offload(struct cp_arenas *a);
/* Find out what was taken from outside, and how many bytes are in the store.  Returns in how many chunks. */
size_t cp_arenas_recount(struct cp_arenas *a);
/* Closed arenas.  Shut what is in the store, and only that.  Returns how many chunks. */
size_t cp_arenas_restore_begin(struct cp_arenas *a);
/* Give back what others have left in this device buffer outside of our extents; `room` bytes of window 0 may stay. */
void cp_arenas_clear_buffer(struct cp_arenas *a, size_t room);
/* Copy a shut chunk back.  It stays shut. */
void cp_arenas_bring(struct cp_arenas *a, size_t chunk);
/* Open chunks that were shut (if the arenas are open), or shut one more (closed ones only). */
int cp_arenas_admit(struct cp_arenas *a, size_t chunk, size_t count);
void cp_arenas_shut(struct cp_arenas *a, size_t chunk);

/* ---- packed arenas (packed.c): every page counts that may hold memory, not how far blocks reach; pool lock held ---- */

/* Bytes of pages that hold live blocks, in all windows. */
size_t cp_arenas_covered(const struct cp_arenas *a);
/* From now on pages count: those that hold live blocks. */
int cp_arenas_count_pages(struct cp_arenas *a);
/* Bytes of pages that a block needs and that do not count yet; and count them. */
size_t cp_arenas_uncounted(const struct cp_arenas *a, const void *block, size_t bytes);
void cp_arenas_count(struct cp_arenas *a, const void *block, size_t bytes);
/* Give back pages that count and hold no live block, until it is so many bytes.  Returns how many.  The device buffer holds
 * all of the content that is not in the host store, and is this job's alone. */
size_t cp_arenas_reclaim(struct cp_arenas *a, size_t bytes);
/* Closed arenas, ephemeral content in the residue store, pages count; needs no pool lock.  The ephemeral window moves into
 * the device buffer, where pages that do not count are given back. */
int cp_arenas_pack(struct cp_arenas *a);

/* For persistent.c: the ephemeral window becomes a retired one, a fresh one takes its place; a window is unused again. */
int cp_arenas_retire_window(struct cp_arenas *a, uint32_t fresh);
void cp_arenas_stop_window(struct cp_arenas *a, uint32_t i);
/* Another file behind a window of closed arenas. */
int cp_arenas_set_file(struct cp_arenas *a, uint32_t i, int fd, off_t offset);
/* For packed.c: the run of whole pages around live blocks from block *i on; *i moves behind it.  False: there is none. */
bool cp_live_pages(const struct cp_pool *p, uint32_t *i, size_t *from, size_t *to);
/* Give back pages of the device buffer, by their place in a window. */
void cp_punch(const struct cp_arenas *a, uint32_t window, size_t start, size_t end);

/* pwrite until everything is written; from memory that is not arena memory (or through its parking range). */
int cp_write_all(int fd, const char *from, size_t length, off_t at);

/* Live runs of one window, or of all; appended to the store's list without copying bytes. */
int cp_store_collect(struct cp_store *s, const struct cp_arenas *a, uint32_t window);
void cp_store_clear(struct cp_store *s);

static inline bool cp_arenas_hold(const struct cp_arenas *a, const void *p) {
  return (uintptr_t)p - (uintptr_t)a->lo < a->span;
}
static inline struct cp_window *cp_arenas_window(struct cp_arenas *a, const void *p) {
  return &a->win[(size_t)((const char *)p - a->lo) / a->window];
}
/* Does the window's content move between device buffer and store? */
static inline bool cp_arenas_moves(const struct cp_arenas *a, uint32_t i) {
  return a->win[i].kind == CP_PERSISTENT || a->win[i].kind == CP_RETIRED || (a->packed && i == a->ephemeral);
}
static inline size_t cp_arenas_chunk(const struct cp_arenas *a, const void *p) {
  return (size_t)((const char *)p - a->lo) / CP_CHUNK;
}
/* The chunk through its parking range; all parking ranges lie side by side, as the bases do. */
static inline char *cp_arenas_parked(const struct cp_arenas *a, size_t chunk) {
  return a->win[0].park + chunk * CP_CHUNK;
}
static inline bool cp_arenas_is_shut(const struct cp_arenas *a, size_t chunk) {
  return a->host.chunks && __atomic_load_n(&a->host.shut[chunk], __ATOMIC_ACQUIRE);
}
/* Persistent bytes that must be granted at present. */
size_t cp_arenas_persistent(const struct cp_arenas *a);
#endif
