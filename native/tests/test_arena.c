/* Arenas with real memory: what is saved comes back at the same address, whatever others write to the lane. */
#include "check.h"
#include <sys/mman.h>

#include "../arena.c"
#include "../pool.c"
uint64_t cp_syscalls;

#define BLOCKS 300
static struct cp_arenas a;
static struct {
  unsigned char *p;
  size_t n;
  unsigned char fill;
} held[BLOCKS];

static void allocate(int i, uint32_t window) {
  size_t need = 0;
  held[i].n = 256 + next_random() % 40000;
  held[i].p = cp_pool_alloc(&a.win[window].pool, held[i].n, a.window, 0, &need);
  held[i].fill = (unsigned char)next_random();
  CHECK_THAT(held[i].p);
  memset(held[i].p, held[i].fill, held[i].n);
}

static void all_there(void) {
  for (int i = 0; i < BLOCKS; i++)
    for (size_t k = 0; held[i].p && k < held[i].n; k += 61) CHECK_THAT(held[i].p[k] == held[i].fill);
}

/* What another job does with the lane while we do not hold it. */
static void others_compute(int lane) {
  char *p = mmap(NULL, 64 * CP_MIB, PROT_READ | PROT_WRITE, MAP_SHARED, lane, 0);
  CHECK_THAT(p != MAP_FAILED);
  memset(p, (int)next_random(), 64 * CP_MIB);
  munmap(p, 64 * CP_MIB);
}

/* Bytes that really exist behind a memfd. */
static size_t pages(int fd) {
  off_t blocks = 0, at = 0, hole;
  while ((at = lseek(fd, at, SEEK_DATA)) >= 0) {
    hole = lseek(fd, at, SEEK_HOLE);
    blocks += hole - at;
    at = hole;
  }
  return (size_t)blocks;
}

static void switch_many(int lane, int rounds) {
  for (int round = 0; round < rounds; round++) {
    for (int i = 0; i < BLOCKS; i++) {
      if (next_random() % 3) continue;
      if (held[i].p) {
        struct cp_window *w = cp_arenas_window(&a, held[i].p);
        CHECK_THAT(cp_pool_free(&w->pool, held[i].p));
      }
      allocate(i, next_random() % 4 ? a.ephemeral : 0);
    }
    CHECK_THAT(!cp_arenas_close(&a) && !cp_arenas_save_residue(&a));
    others_compute(lane);
    if (round % 5 == 4 && held[0].p) { /* blocks may come and go while the arenas are closed */
      struct cp_window *w = cp_arenas_window(&a, held[0].p);
      CHECK_THAT(cp_pool_free(&w->pool, held[0].p));
      held[0].p = NULL;
    }
    cp_arenas_restore_residue(&a);
    CHECK_THAT(!cp_arenas_open(&a));
    all_there();
  }
}

static void promotion(int lane, int device) {
  size_t before = pages(device);
  uint64_t live = a.win[a.ephemeral].pool.live;
  uint32_t old = a.ephemeral;
  CHECK_THAT(!cp_arenas_close(&a));
  CHECK_THAT(cp_arenas_retire(&a) == (int64_t)live && a.ephemeral != old && a.win[old].kind == CP_RETIRED);
  others_compute(lane);
  CHECK_THAT(!cp_arenas_open(&a));
  all_there();
  CHECK_THAT(pages(device) >= before + live && a.win[old].backed >= live);
  CHECK_THAT(cp_arenas_persistent(&a) >= a.win[old].backed);
}

static void trimming(int device) {
  for (int i = 0; i < BLOCKS; i++) {
    if (!held[i].p) continue;
    CHECK_THAT(cp_pool_free(&cp_arenas_window(&a, held[i].p)->pool, held[i].p));
    held[i].p = NULL;
  }
  CHECK_THAT(!cp_arenas_close(&a));
  size_t had = cp_arenas_persistent(&a);
  CHECK_THAT(cp_arenas_trim(&a) == had && cp_arenas_persistent(&a) == 0);
  CHECK_THAT(pages(device) <= CP_PAGE); /* the probe's page at most */
  for (int i = 1; i < CP_WINDOWS; i++) CHECK_THAT(a.win[i].kind != CP_RETIRED);
  CHECK_THAT(!cp_arenas_open(&a));
}

static void offload(int lane, int device) {
  for (int i = 0; i < BLOCKS; i++) allocate(i, i % 2 ? 0 : a.ephemeral);
  CHECK_THAT(!cp_arenas_close(&a) && !cp_arenas_save_residue(&a) && !cp_arenas_offload(&a));
  CHECK_THAT(pages(device) == 0);
  others_compute(lane);
  CHECK_THAT(!cp_arenas_reload(&a));
  cp_arenas_restore_residue(&a);
  CHECK_THAT(!cp_arenas_open(&a));
  all_there();
}

static void scenario(bool parking) {
  int lane = memfd_create("lane", 0), device = memfd_create("device", 0);
  CHECK_THAT(!ftruncate(lane, CP_GIB) && !ftruncate(device, 16 * (off_t)CP_GIB));
  CHECK_THAT(!cp_arenas_init(&a, CP_GIB, device, lane));
  if (!parking) a.parking = false; /* what kernels before 5.13 do */
  CHECK_THAT(!cp_arenas_open(&a));
  memset(held, 0, sizeof held);
  for (int i = 0; i < BLOCKS; i++) allocate(i, a.ephemeral);
  switch_many(lane, 30);
  promotion(lane, device);
  switch_many(lane, 10);
  promotion(lane, device);
  trimming(device);
  offload(lane, device);
  close(lane);
  close(device);
}

int main(void) {
  scenario(true);
  CHECK_THAT(a.parking || printf("this kernel cannot park page tables\n"));
  scenario(false);
  return 0;
}
