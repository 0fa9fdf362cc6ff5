/* Weights in the memory of a host device: written through their file, and computed with in a mapping without access to
 * groups that are not there. */
#include "groups_state.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PIECE (4 * CP_MIB)

int cp_signals_start(void);

static void give_up(const char *message) {
  syscall(SYS_write, STDERR_FILENO, message, strlen(message));
  abort();
}

static void give(struct cp_groups *g, uint32_t k, bool access) {
  if (mprotect(g->at + g->bounds[k], g->bounds[k + 1] - g->bounds[k], access ? PROT_READ : PROT_NONE))
    give_up("carpool: too many mappings for the groups of a model (sysctl vm.max_map_count)\n");
}

/* The kernel need not clear a fresh page that a call fills, nor is there a fault for each: that takes half as long.
 * Access costs a third of the copy where pages are small, so who computes gets it for himself when he has caught up (he
 * would only wait), and the rest is given when all has been copied. */
static bool finish(struct cp_groups *g, uint32_t k) {
  uint64_t at = g->bounds[k], end = g->bounds[k + 1];
  while (at < end) {
    long written = cp_write_at(g->device, g->from + at, end - at, at);
    if (written > 0) at += (uint64_t)written;
    else if (!written || errno != EINTR) give_up("carpool: there is no memory for the weights of a model\n");
  }
  return true;
}

static int open_(struct cp_groups *g) {
  g->at = cp_groups_map(g->device, g->bytes, PROT_NONE, MAP_SHARED);
  return !g->at || cp_signals_start() ? errno : 0;
}

static void close_(struct cp_groups *g) {
  if (g->at) munmap(g->at, g->bytes);
}

static void remap(struct cp_groups *g) {
  if (mmap(g->at, g->bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, g->device, 0) == MAP_FAILED)
    give_up("carpool: the weights of a model cannot be mapped\n");
}

/* The file's pages stay; without this one's page tables, taking access or mapping another file takes no time.  In pieces,
 * because other mappings of the process cannot change meanwhile. */
static void forget(struct cp_groups *g) {
  for (size_t at = 0; at < g->bytes; at += PIECE)
    madvise(g->at + at, g->bytes - at < PIECE ? g->bytes - at : PIECE, MADV_DONTNEED);
}

static const struct cp_carrier host = {
    .open = open_, .close = close_, .give = give, .finish = finish, .remap = remap, .forget = forget};

CP_EXPORT struct cp_groups *cp_groups_open(int device, int image, const uint64_t *bounds, uint32_t count,
                                           const uint8_t *key) {
  return cp_groups_make(&host, NULL, device, image, bounds, count, key);
}
