/* Turns in one process: three threads compute on arena memory while an arbiter takes the turn away at random moments,
 * overwrites the whole lane, and gives it back, or pauses them and sees to it that nothing changes meanwhile.  At
 * every second switch the job is offloaded as well, its device buffer is overwritten, and turns end in the middle of
 * restores.  Every value must come out as if nobody had been there. */
#include "tests/check.h"
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "tests/library.h"
#include "tests/packet.h"

#define WORKERS 3
#define ENOUGH SHORT_OR_LONG(20, 60) /* revocations */
#define CELLS 20000
#define LANE (64 * CP_MIB)
#define PAGES SHORT_OR_LONG(2048ul, 4096ul) /* persistent, of each worker */
#define BANK (WORKERS * PAGES * CP_PAGE)
static int arbiter_fd, lane, device, finished;
static char *alias;
static uint64_t *cells[WORKERS], *kept[WORKERS];
static unsigned long offloads, changes, pauses;
static unsigned long revoked;
static uint64_t rounds[WORKERS];

static void on_fault(int sig, siginfo_t *info, void *context) {
  (void)sig, (void)context;
  int saved = errno;
  if (!cp_arenas_hold(&cp.arenas, info->si_addr)) abort();
  cp_trap(info->si_addr);
  errno = saved;
}

/* However the dice fall. */
static bool all_happened(void) {
  return cp_relaxed(&revoked) >= ENOUGH && cp_relaxed(&offloads) > 5 && cp_relaxed(&changes) > 0 && cp_relaxed(&pauses) > 5;
}

static void *worker(void *argument) {
  uint64_t *c = cells[(size_t)argument];
  while (!all_happened()) {
    uint64_t round = ++rounds[(size_t)argument];
    for (size_t i = 0; i < CELLS; i++) c[i] = c[i] * 6364136223846793005ull + round;
    uint64_t *k = kept[(size_t)argument];
    for (size_t i = 0; i < PAGES; i++) k[i * 512] = k[i * 512] * 6364136223846793005ull + round;
  }
  __atomic_add_fetch(&finished, 1, __ATOMIC_SEQ_CST);
  return NULL;
}

static uint64_t expected(size_t w, size_t i) {
  uint64_t v = w * 1000 + i;
  for (uint64_t round = 1; round <= rounds[w]; round++) v = v * 6364136223846793005ull + round;
  return v;
}

/* Two threads' packets may overtake each other; the seat says whether the turn has ended. */
static void look_at_seat(void) {
  static uint64_t seen;
  if (cp_load(&cp.seat->passed_seq) == seen) return;
  seen++;
  CHECK_THAT(cp_load(&cp.seat->turn) == 0 && cp_load(&cp.seat->passed_seq) == seen);
  __atomic_add_fetch(&revoked, 1, __ATOMIC_SEQ_CST);
  memset(alias, (int)next_random(), 2 * CP_MIB);
}

static void give(void) {
  cp_store(&cp.seat->turn_start_us, cp_now_us());
  cp_store(&cp.seat->turn, 1);
  cp_futex_wake(&cp.seat->turn);
  cp_notify(cp.seat);
}

static void offload(void) {
  cp_store(&cp.seat->offload, CP_OFFLOAD_ASKED);
  cp_notify(cp.seat);
}

static void send_buffer(int fd) {
  uint64_t number = cp.seat->bank + 1;
  cp_store(&cp.seat->bank, number);
  send_packet(arbiter_fd, (struct cp_packet){.type = CP_BANK, .a = number}, fd);
}

/* Another job uses the device buffer; afterwards we get it back, or another one. */
static void others_use_buffer(void) {
  static int buffer[2]; /* descriptors of our own: the job closes its own */
  CHECK_THAT(cp_load(&cp.seat->offloaded) == 1 && cp.seat->offload == CP_OFFLOAD_DONE);
  cp_store(&cp.seat->offload, CP_OFFLOAD_NO);
  cp_add(&offloads, 1);
  if (!buffer[0]) buffer[0] = dup(device), buffer[1] = memfd_create("bank", 0);
  CHECK_THAT(!ftruncate(buffer[1], 16 * (off_t)CP_GIB));
  char *p = mmap(NULL, BANK, PROT_READ | PROT_WRITE, MAP_SHARED, buffer[changes % 2], 0);
  CHECK_THAT(p != MAP_FAILED);
  memset(p, (int)next_random(), BANK);
  munmap(p, BANK);
  if (offloads % 4) return;
  send_buffer(buffer[cp_add(&changes, 1) % 2]);
}

/* Paused: nobody computes.  Then they go on, or have to let go. */
static void look_at_lane(void) {
  static char before[2 * CP_MIB];
  memcpy(before, alias, sizeof before);
  sched_yield();
  CHECK_THAT(cp_load(&cp.seat->turn) == 1 && !memcmp(before, alias, sizeof before));
  cp_add(&pauses, 1);
  ask_yield(next_random() % 2 ? CP_YIELD_NO : CP_YIELD_NOW);
}

static void *arbiter(void *unused) {
  (void)unused;
  struct cp_packet p;
  for (;;) {
    struct timeval patience = {.tv_usec = 200 + (int)(next_random() % 3000)};
    setsockopt(arbiter_fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    ssize_t n = recv(arbiter_fd, &p, sizeof p, 0);
    if (n == 0) return NULL;
    if (n < 0) { /* nothing happened for a while: take the turn, one way or the other */
      static const uint32_t ways[4] = {CP_YIELD_NOW, CP_YIELD_PAUSE, CP_YIELD_PAUSE, CP_YIELD_BOUNDARY};
      ask_yield(ways[next_random() % 4]);
      continue;
    }
    CHECK_THAT(n == sizeof p);
    CHECK_THAT(p.type == CP_RELEASED || p.type == CP_WANT || p.type == CP_PAUSED || (p.type == CP_OFFLOADED && p.a == 0));
    look_at_seat();
    bool asked = cp_load(&cp.seat->yield) == CP_YIELD_PAUSE; /* and nothing else since */
    if (p.type == CP_PAUSED && asked && p.a == cp_load(&cp.seat->pause_seq)) look_at_lane();
    if (p.type == CP_OFFLOADED) others_use_buffer();
    if (p.type == CP_WANT && next_random() % 2 && !cp_load(&cp.seat->turn))
      offload();
    else if (p.type == CP_WANT || p.type == CP_OFFLOADED)
      give();
  }
}

static void attach(void) {
  int pair[2];
  CHECK_THAT(!socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair));
  lane = memfd_create("lane", 0);
  device = memfd_create("device", 0);
  CHECK_THAT(!ftruncate(lane, LANE) && !ftruncate(device, 16 * (off_t)CP_GIB));
  alias = mmap(NULL, LANE, PROT_READ | PROT_WRITE, MAP_SHARED, lane, 0);
  cp.seat_table = mmap(NULL, CP_BOARD_HEADER + 16 * sizeof(struct cp_seat), PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  cp.seat = (struct cp_seat *)(cp.seat_table + CP_BOARD_HEADER);
  cp.seat->grace_us = 500;
  cp.fd = pair[0];
  arbiter_fd = pair[1];
  cp.e_cap = LANE;
  cp_boundary_init(&cp.boundary);
  CHECK_THAT(!cp_arenas_init(&cp.arenas, CP_GIB, device, lane));
  cp.arenas.parking &= parking;
  int store = memfd_create("store", 0);
  CHECK_THAT(!ftruncate(store, 16 * (off_t)CP_GIB + 16 * (off_t)CP_GIB / CP_CHUNK));
  CHECK_THAT(!cp_host_init(&cp.arenas.host, CP_WINDOWS * CP_GIB, store));
  CHECK_THAT(!cp_order_init(&cp.order, cp.arenas.host.chunks));
  struct sigaction a = {.sa_flags = SA_SIGINFO | SA_NODEFER};
  a.sa_sigaction = on_fault;
  CHECK_THAT(!sigaction(SIGSEGV, &a, NULL));
  CHECK_THAT(!cp_helper_start());
  cp_store(&cp.attached, 1);
}

int main(void) {
  pthread_t judge, thread[WORKERS];
  size_t need;
  both_modes();
  attach();
  CHECK_THAT(!pthread_create(&judge, NULL, arbiter, NULL));
  for (size_t w = 0; w < WORKERS; w++) {
    cells[w] = cp_pool_alloc(&cp.arenas.win[1].pool, CELLS * 8, LANE, 0, &need);
    for (size_t i = 0; i < CELLS; i++) cells[w][i] = w * 1000 + i; /* the first touch traps */
    kept[w] = cp_pool_alloc(&cp.arenas.win[0].pool, PAGES * CP_PAGE, CP_GIB, 0, &need);
    for (size_t i = 0; i < PAGES; i++) kept[w][i * 512] = w * 1000 + i;
  }
  for (size_t w = 0; w < WORKERS; w++) CHECK_THAT(!pthread_create(&thread[w], NULL, worker, (void *)w));
  for (size_t w = 0; w < WORKERS; w++) pthread_join(thread[w], NULL);
  for (size_t w = 0; w < WORKERS; w++)
    for (size_t i = 0; i < CELLS; i += 997) CHECK_THAT(cells[w][i] == expected(w, i));
  for (size_t w = 0; w < WORKERS; w++)
    for (size_t i = 0; i < PAGES; i += 97) CHECK_THAT(kept[w][i * 512] == expected(w, i));
  CHECK_THAT(offloads > 5 && changes > 0 && pauses > 5 && cp.seat->in_bytes > BANK && cp.seat->out_bytes > BANK);
  CHECK_THAT(finished == WORKERS && cp.seat->forced + cp.seat->early > 0 && cp.seat->turns > 1);
  shutdown(cp.fd, SHUT_RDWR);
  pthread_join(judge, NULL);
  printf("%lu revocations, %lu early, %lu forced, %lu turns, %lu offloads, %lu banks, %lu pauses, %lu touches of what was not back\n",
         revoked, (unsigned long)cp.seat->early, (unsigned long)cp.seat->forced, (unsigned long)cp.seat->turns, offloads,
         changes + 1, pauses, (unsigned long)cp.seat->demanded);
  return 0;
}
