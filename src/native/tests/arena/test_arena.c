/* Arenas with real memory: what is saved comes back at the same address, whatever others write to the lane. */
#include "tests/check.h"
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <sys/mman.h>

static bool kernel_joins = true;   /* does it see one mapping where pieces were moved one by one? */
static int allocations_left = -1; /* then there is no more memory; -1: never */

static void *test_mremap(void *from, size_t old, size_t bytes, int flags, void *to) {
  if (!kernel_joins && old == bytes && bytes > (2u << 20)) {
    errno = EFAULT;
    return MAP_FAILED;
  }
  return mremap(from, old, bytes, flags, to);
}
static int test_fallocate(int fd, int mode, off_t at, off_t bytes) {
  if (mode == 0 && allocations_left == 0) {
    errno = ENOSPC;
    return -1;
  }
  if (mode == 0 && allocations_left > 0) allocations_left--;
  return fallocate(fd, mode, at, bytes);
}
#define mremap(...) pick(__VA_ARGS__, test_mremap, plain_mremap, , , )(__VA_ARGS__)
#define pick(a, b, c, d, e, name, ...) name
#define plain_mremap(from, old, bytes, flags) test_mremap(from, old, bytes, flags, NULL)
#define fallocate test_fallocate

#include "arena/arena.c"
#include "store/host_store.c"
#include "arena/packed.c"
#include "arena/persistent.c"
#include "arena/pool.c"
#include "arena/residue.c"
uint64_t cp_syscalls;

#define BLOCKS 300
#define ROUNDS SHORT_OR_LONG(5, 10)
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
  held[i].fill = next_random() % 3 ? (unsigned char)next_random() : 0; /* pages of zeros are not moved */
  CHECK_THAT(held[i].p);
  memset(held[i].p, held[i].fill, held[i].n);
}

static void all_there(void) {
  for (int i = 0; i < BLOCKS; i++)
    for (size_t k = 0; held[i].p && k < held[i].n; k += 61) CHECK_THAT(held[i].p[k] == held[i].fill);
}

static void fill(int fd, off_t begin, size_t bytes) {
  static char garbage[1 << 16];
  memset(garbage, (int)next_random(), sizeof garbage);
  for (size_t at = 0; at < bytes; at += sizeof garbage) {
    size_t n = bytes - at < sizeof garbage ? bytes - at : sizeof garbage;
    CHECK_THAT(pwrite(fd, garbage, n, begin + (off_t)at) == (ssize_t)n);
  }
}

/* What another job does with the lane while we do not hold it: it writes to all that we have used, and to some more. */
static void others_compute(int lane) {
  size_t high = 0;
  for (size_t i = 0; i < CP_WINDOWS; i++)
    if (cp_pool_high(&a.win[i].pool) > high) high = cp_pool_high(&a.win[i].pool);
  fill(lane, 0, cp_round_up(high, CP_PAGE) + CP_MIB);
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

/* Every mapping of a lane, a device buffer or a store is left out, wherever the kernel has moved it to. */
static void none_in_cores(void) {
  char line[512];
  unsigned mappings = 0;
  bool ours = false;
  FILE *maps = fopen("/proc/self/smaps", "r");
  CHECK_THAT(maps);
  while (fgets(line, sizeof line, maps)) {
    if (strstr(line, " /memfd:")) ours = true;
    if (strncmp(line, "VmFlags:", 8)) continue;
    if (ours) CHECK_THAT(strstr(line, " dd"));
    mappings += ours;
    ours = false;
  }
  fclose(maps);
  CHECK_THAT(mappings >= 2);
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

static void free_all(void) {
  for (int i = 0; i < BLOCKS; i++) {
    if (!held[i].p) continue;
    CHECK_THAT(cp_pool_free(&cp_arenas_window(&a, held[i].p)->pool, held[i].p));
    held[i].p = NULL;
  }
}

static void trimming(int device) {
  free_all();
  CHECK_THAT(!cp_arenas_close(&a));
  size_t had = cp_arenas_persistent(&a);
  CHECK_THAT(cp_arenas_trim(&a) == had && cp_arenas_persistent(&a) == 0);
  CHECK_THAT(pages(device) <= CP_PAGE); /* the probe's page at most */
  for (int i = 1; i < CP_WINDOWS; i++) CHECK_THAT(a.win[i].kind != CP_RETIRED);
  CHECK_THAT(!cp_arenas_open(&a));
}

/* ---- offload and restore --------------------------------------------------------------------------------------------- */

#define BIG (3 * CP_MIB) /* so that blocks reach over chunks */
static int buffers[2], present_buffer;

/* What other jobs do with a device buffer that is not ours: they write to all pages that we have used, and to some
 * more. */
static void others_use_buffer(int buffer) {
  for (size_t i = 0; i < CP_WINDOWS; i++) {
    size_t high = cp_round_up(cp_pool_high(&a.win[i].pool), CP_PAGE) + 8 * CP_PAGE * (next_random() % 3);
    fill(buffer, (off_t)(i * CP_GIB), high);
  }
}

static void come_and_go(uint32_t window) {
  for (int i = 0; i < BLOCKS; i++) {
    if (next_random() % 4) continue;
    if (held[i].p) CHECK_THAT(cp_pool_free(&cp_arenas_window(&a, held[i].p)->pool, held[i].p));
    held[i].p = NULL;
    size_t need = 0;
    held[i].n = i % SHORT_OR_LONG(24, 8) ? 256 + next_random() % 40000 : next_random() % BIG + 1;
    if (!(held[i].p = cp_pool_alloc(&a.win[window].pool, held[i].n, a.window, 0, &need))) continue;
    held[i].fill = next_random() % 3 ? (unsigned char)next_random() : 0; /* pages of zeros are not moved */
    memset(held[i].p, held[i].fill, held[i].n);
  }
}

/* Bring some of the chunks back, in any order, some before the arenas are open and some afterwards. */
static void bring_some(unsigned per_cent) {
  for (size_t k = cp_host_next(&a.host, 0); k < a.host.chunks; k = cp_host_next(&a.host, k + 1)) {
    if (next_random() % 100 >= per_cent) continue;
    CHECK_THAT(cp_arenas_is_shut(&a, k));
    cp_arenas_bring(&a, k);
    if (next_random() % 4) CHECK_THAT(!cp_arenas_admit(&a, k, 1)); /* or back, but still shut */
  }
}

static void offload_all(void) {
  uint64_t before = a.host.stored;
  CHECK_THAT(!cp_arenas_close(&a) && !cp_arenas_save_residue(&a));
  cp_host_lock(&a.host);
  cp_arenas_note_alive(&a);
  CHECK_THAT(!cp_arenas_offload(&a) && a.host.stored >= before);
  cp_host_unlock(&a.host);
}

static void grant(bool first) {
  size_t chunks = cp_arenas_restore_begin(&a);
  if (first) {
    cp_arenas_clear_buffer(&a, 0);
    CHECK_THAT(pages(a.device_fd) <= cp_arenas_persistent(&a));
  }
  cp_arenas_restore_residue(&a);
  if (next_random() % 2) bring_some(30);
  CHECK_THAT(!cp_arenas_open(&a));
  CHECK_THAT(chunks >= a.host.shut_chunks);
}

/* Turns that end before everything is back: what is in the store stays there. */
static void interrupted(int lane) {
  for (unsigned n = next_random() % 3; n; n--) {
    bring_some(25);
    CHECK_THAT(!cp_arenas_close(&a) && !cp_arenas_save_residue(&a));
    others_compute(lane);
    grant(false);
  }
}

static void finish(void) {
  bring_some(100);
  for (size_t k = 0; k < a.host.chunks; k++)
    if (a.host.shut[k]) CHECK_THAT(!cp_arenas_admit(&a, k, 1));
  CHECK_THAT(cp_host_next(&a.host, 0) == a.host.chunks && a.host.stored == 0 && a.host.shut_chunks == 0);
}

static void retire_some(int lane) {
  for (int i = 0; i < BLOCKS; i++)
    if (!held[i].p) allocate(i, a.ephemeral);
  CHECK_THAT(!cp_arenas_close(&a) && cp_arenas_retire(&a) >= 0);
  others_compute(lane);
  CHECK_THAT(!cp_arenas_open(&a));
}

static void offload_many(int lane, int rounds) {
  for (int round = 0; round < rounds; round++) {
    come_and_go(next_random() % 3 ? 0 : a.ephemeral);
    if (round % 9 == 4) retire_some(lane);
    offload_all();
    if (round % 3 == 2) { /* blocks may go while they are in the store */
      for (int i = 0; i < BLOCKS; i += 7) {
        if (held[i].p) CHECK_THAT(cp_pool_free(&cp_arenas_window(&a, held[i].p)->pool, held[i].p));
        held[i].p = NULL;
      }
    }
    others_use_buffer(buffers[present_buffer]);
    others_compute(lane);
    if (next_random() % 2) {
      present_buffer ^= 1;
      CHECK_THAT(!cp_arenas_set_buffer(&a, buffers[present_buffer]));
    }
    grant(true);
    interrupted(lane);
    if (round % 4 == 3) { /* offloaded again before everything was back */
      offload_all();
      others_use_buffer(buffers[present_buffer]);
      others_compute(lane);
      grant(true);
    }
    finish();
    all_there();
  }
}

/* Zeros that came back do not exist, and to look at them again does not make them. */
static void zeros_are_left_alone(void) {
  for (int i = 0; i < BLOCKS; i++) {
    held[i].fill = 0;
    if (held[i].p) memset(held[i].p, 0, held[i].n);
  }
  offload_all();
  grant(true);
  finish();
  size_t exist = pages(a.device_fd);
  CHECK_THAT(exist < cp_arenas_persistent(&a) / 2);
  offload_all();
  CHECK_THAT(pages(a.device_fd) == exist);
  grant(false);
  finish();
  all_there();
}

/* The shim copies all data of the device buffer and knows nothing of blocks. */
static void taken_from_outside(int lane) {
  CHECK_THAT(!cp_arenas_close(&a) && !cp_arenas_save_residue(&a));
  for (size_t k = 0; k < a.host.chunks; k++) {
    off_t data = lseek(a.device_fd, (off_t)(k * CP_CHUNK), SEEK_DATA);
    if (data < 0 || data >= (off_t)((k + 1) * CP_CHUNK)) continue;
    static char chunk[CP_CHUNK];
    CHECK_THAT(pread(a.device_fd, chunk, CP_CHUNK, (off_t)(k * CP_CHUNK)) == CP_CHUNK);
    CHECK_THAT(pwrite(a.host.fd, chunk, CP_CHUNK, (off_t)(k * CP_CHUNK)) == CP_CHUNK);
    a.host.state[k] = CP_IN_STORE;
  }
  others_use_buffer(buffers[present_buffer]);
  others_compute(lane);
  grant(false);
  CHECK_THAT(a.host.stored > 0);
  finish();
  all_there();
}

static void no_memory_for_the_store(void) {
  come_and_go(0);
  CHECK_THAT(!cp_arenas_close(&a) && !cp_arenas_save_residue(&a));
  cp_host_drop_all(&a.host);
  CHECK_THAT(cp_host_memory(&a.host) <= 4 * CP_PAGE);
  cp_arenas_note_alive(&a);
  allocations_left = 3;
  CHECK_THAT(cp_arenas_offload(&a) == -1 && errno == ENOSPC);
  allocations_left = -1;
  CHECK_THAT(cp_host_next(&a.host, 0) == a.host.chunks && a.host.stored == 0);
  CHECK_THAT(cp_host_memory(&a.host) <= 4 * CP_PAGE); /* what it had got it has given back */
  grant(false);
  all_there();
}

static void offload(int lane, int device) {
  buffers[0] = device;
  buffers[1] = memfd_create("bank", 0);
  int store = memfd_create("store", 0);
  CHECK_THAT(!ftruncate(buffers[1], 16 * (off_t)CP_GIB));
  CHECK_THAT(!ftruncate(store, 16 * (off_t)CP_GIB + 16 * (off_t)CP_GIB / CP_CHUNK));
  CHECK_THAT(!cp_host_init(&a.host, CP_WINDOWS * CP_GIB, store));
  present_buffer = 0;
  for (int i = 0; i < BLOCKS; i++) allocate(i, i % 2 ? 0 : a.ephemeral);
  offload_many(lane, ROUNDS);
  zeros_are_left_alone();
  taken_from_outside(lane);
  no_memory_for_the_store();
  offload_many(lane, SHORT_OR_LONG(3, 5));
  free_all();
  offload_all(); /* nothing is alive: nothing is stored */
  CHECK_THAT(a.host.stored == 0);
  grant(true);
  CHECK_THAT(a.host.shut_chunks == 0);
  close(buffers[1]);
  close(store);
}

static void scenario(bool parking, bool joins) {
  int lane = memfd_create("lane", 0), device = memfd_create("device", 0);
  CHECK_THAT(!ftruncate(lane, CP_GIB) && !ftruncate(device, 16 * (off_t)CP_GIB));
  CHECK_THAT(!cp_arenas_init(&a, CP_GIB, device, lane));
  if (!parking) a.parking = false; /* what kernels before 5.13 do */
  kernel_joins = joins;
  CHECK_THAT(!cp_arenas_open(&a));
  memset(held, 0, sizeof held);
  for (int i = 0; i < BLOCKS; i++) allocate(i, a.ephemeral);
  switch_many(lane, SHORT_OR_LONG(6, 30));
  promotion(lane, device);
  none_in_cores();
  switch_many(lane, SHORT_OR_LONG(3, 10));
  promotion(lane, device);
  trimming(device);
  offload(lane, device);
  kernel_joins = true;
  none_in_cores();
  close(lane);
  close(device);
}

int main(void) {
  scenario(true, true);
  CHECK_THAT(a.parking || printf("this kernel cannot park page tables\n"));
  scenario(true, false);
  scenario(false, true);
  return 0;
}
