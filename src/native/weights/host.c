/* Weights in the memory of a host device: written through their file or a mapping of it that is for that alone, and
 * computed with in another mapping, without access to groups that are not there. */
#include "weights/groups_state.h"
#include "base/core_dump.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define PIECE (4 * CP_MIB)
#define MOST_FILES (256 + MOST_UNUSED) /* as many groups may be open */
#define MOST_UNUSED 16

int cp_signals_start(void);

static void give_up(const char *message) {
  syscall(SYS_write, STDERR_FILENO, message, strlen(message));
  abort();
}

static void give(struct cp_groups *g, uint32_t k, bool access) {
  if (mprotect(g->at + g->bounds[k], g->bounds[k + 1] - g->bounds[k], access ? PROT_READ : PROT_NONE))
    give_up("carpool: too many mappings for the groups of a model (sysctl vm.max_map_count)\n");
}

/* ---- writing --------------------------------------------------------------------------------------------------------- */

/* Mappings for writing.  They stay while any groups use the file, and some of them after that until groups are closed:
 * models use the same few files one after another, and making page tables takes as long as copying. */
static struct writable {
  dev_t device;
  ino_t inode;
  char *at;
  size_t bytes;
  uint32_t users;
  uint64_t left; /* when the last one left it */
} files[MOST_FILES];
static uint32_t files_count;
static struct cp_lock files_lock;

/* Lock held.  So many unused ones stay, the last ones. */
static void unmap_unused(uint32_t most) {
  for (;;) {
    uint32_t unused = 0, oldest = 0;
    for (uint32_t i = 0; i < files_count; i++) {
      if (files[i].users) continue;
      if (!unused++ || files[i].left < files[oldest].left) oldest = i;
    }
    if (unused <= most) return;
    munmap(files[oldest].at, files[oldest].bytes);
    files[oldest] = files[--files_count];
  }
}

/* Lock held.  NULL: it cannot be mapped, so it is written by calls. */
static struct writable *map_file(const struct cp_groups *g) {
  struct stat status;
  if (cp_fstat(g->device, &status)) return NULL;
  for (uint32_t i = 0; i < files_count; i++)
    if (files[i].inode == status.st_ino && files[i].device == status.st_dev) return &files[i];
  if (files_count == MOST_FILES) return NULL;
  size_t bytes = (size_t)status.st_size;
  char *at = cp_groups_map(g->device, bytes, PROT_READ | PROT_WRITE, MAP_SHARED);
  if (!at) return NULL;
  cp_leave_out_of_cores(at, bytes);
  files[files_count] = (struct writable){status.st_dev, status.st_ino, at, bytes, 0, 0};
  return &files[files_count++];
}

static void use_file(struct cp_groups *g) {
  cp_acquire(&files_lock);
  struct writable *file = map_file(g);
  g->to = file ? file->at : NULL;
  if (file) file->users++;
  cp_release(&files_lock);
}

static void leave_file(struct cp_groups *g, uint32_t most_unused) {
  static uint64_t number;
  cp_acquire(&files_lock);
  for (uint32_t i = 0; i < files_count; i++)
    if (g->to && files[i].at == g->to && !--files[i].users) files[i].left = ++number;
  g->to = NULL;
  unmap_unused(most_unused);
  cp_release(&files_lock);
}

static bool is_there(const struct cp_groups *g, uint64_t at, size_t bytes) {
  unsigned char there[PIECE / CP_PAGE];
  if (!g->to || mincore(g->to + at, bytes, there)) return false;
  for (size_t i = 0; i < bytes / CP_PAGE; i++)
    if (!(there[i] & 1)) return false;
  return true;
}

/* The kernel need not clear a fresh page that a call fills, nor is there a fault for each: that takes half as long.  Pages
 * that are there are written twice as fast through a mapping.
 * Access costs a third of the copy where pages are small, so who computes gets it for himself when he has caught up (he
 * would only wait), and the rest is given when all has been copied. */
static bool finish(struct cp_groups *g, uint32_t k) {
  uint64_t at = g->bounds[k], end = g->bounds[k + 1];
  while (at < end) {
    size_t bytes = end - at < PIECE ? end - at : PIECE;
    long written = is_there(g, at, bytes) ? cp_copy_at(g->to, g->from + at, bytes, at)
                                          : cp_write_at(g->device, g->from + at, bytes, at);
    if (written > 0) at += (uint64_t)written;
    else if (!written || errno != EINTR) give_up("carpool: there is no memory for the weights of a model\n");
  }
  return true;
}

/* ---- the mapping that is computed with ------------------------------------------------------------------------------- */

static int open_(struct cp_groups *g) {
  g->at = cp_groups_map(g->device, g->bytes, PROT_NONE, MAP_SHARED);
  if (!g->at) return errno;
  cp_leave_out_of_cores(g->at, g->bytes);
  use_file(g);
  return cp_signals_start() ? errno : 0;
}

static void close_(struct cp_groups *g) {
  if (g->at) munmap(g->at, g->bytes);
  leave_file(g, 0);
}

static void change(struct cp_groups *g) {
  leave_file(g, MOST_UNUSED);
  use_file(g);
}

static void remap(struct cp_groups *g) {
  if (mmap(g->at, g->bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, g->device, 0) == MAP_FAILED)
    give_up("carpool: the weights of a model cannot be mapped\n");
  cp_leave_out_of_cores(g->at, g->bytes);
}

/* The file's pages stay; without this one's page tables, taking access or mapping another file takes no time.  In pieces,
 * because other mappings of the process cannot change meanwhile. */
static void forget(struct cp_groups *g) {
  for (size_t at = 0; at < g->bytes; at += PIECE)
    cp_madvise(g->at + at, g->bytes - at < PIECE ? g->bytes - at : PIECE, MADV_DONTNEED);
}

static const struct cp_carrier host = {
    .open = open_, .close = close_, .give = give, .finish = finish, .change = change, .remap = remap, .forget = forget};

CP_EXPORT struct cp_groups *cp_groups_open(int device, int image, const uint64_t *bounds, uint32_t count,
                                           const uint8_t *key) {
  return cp_groups_make(&host, NULL, device, image, bounds, count, key);
}
