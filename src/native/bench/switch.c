/* Cost of a switch (revoke and grant) on a populated lane of 1 GiB, against plain copies of the residue's bytes in both
 * directions, in one run.  Prints JSON, microseconds. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "bench/bench.h"

#include "arena/arena.c"
#include "store/host_store.c"
#include "arena/persistent.c"
#include "arena/pool.c"
#include "arena/residue.c"
uint64_t cp_syscalls;

#define ROUNDS 31
static struct cp_arenas a;

static void measure(size_t residue, size_t blocks, const char *end) {
  char *p[4096], *copy = NULL;
  double revoke[ROUNDS], grant[ROUNDS], plain[ROUNDS];
  size_t need;
  for (size_t i = 0; i < blocks; i++) p[i] = cp_pool_alloc(&a.win[1].pool, residue / blocks, CP_GIB, 0, &need);
  if (residue) {
    copy = mmap(NULL, residue, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(copy, 1, residue);
  }
  for (int r = -3; r < ROUNDS; r++) {
    double t0 = now();
    cp_arenas_close(&a);
    cp_arenas_save_residue(&a);
    double t1 = now();
    cp_arenas_restore_residue(&a);
    cp_arenas_open(&a);
    double t2 = now();
    if (residue) memcpy(copy, p[0], residue); /* the blocks touch each other */
    if (residue) memcpy(p[0], copy, residue);
    double t3 = now();
    if (r < 0) continue;
    revoke[r] = t1 - t0;
    grant[r] = t2 - t1;
    plain[r] = t3 - t2;
  }
  double rv = middle(revoke, ROUNDS), gr = middle(grant, ROUNDS), pl = middle(plain, ROUNDS);
  printf("{\"residue_mib\": %zu, \"blocks\": %zu, \"revoke_us\": %.1f, \"grant_us\": %.1f, \"memcpy_us\": %.1f, "
         "\"ratio\": %.3f, \"ratio_less_100us\": %.3f}%s",
         residue >> 20, blocks, rv, gr, pl, pl > 0 ? (rv + gr) / pl : 0, pl > 0 ? (rv + gr - 100) / pl : 0, end);
  for (size_t i = 0; i < blocks; i++) cp_pool_free(&a.win[1].pool, p[i]);
  if (copy) munmap(copy, residue);
}

int main(void) {
  int lane = memfd_create("lane", 0), device = memfd_create("device", 0);
  if (ftruncate(lane, CP_GIB) || ftruncate(device, 16 * (off_t)CP_GIB)) return 1;
  if (cp_arenas_init(&a, CP_GIB, device, lane)) return 1;
  cp_arenas_open(&a);
  memset(a.win[1].base, 1, CP_GIB); /* every page of the lane exists and is mapped */
  printf("{\"lane_gib\": 1, \"parking\": %s, \"sizes\": [", a.parking ? "true" : "false");
  measure(0, 0, ", ");
  measure(CP_MIB, 20, ", ");
  measure(8 * CP_MIB, 100, ", ");
  measure(64 * CP_MIB, 1000, ", ");
  measure(256 * CP_MIB, 4000, "]}\n");
  return 0;
}
