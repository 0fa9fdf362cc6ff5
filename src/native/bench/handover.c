/* Hand-over of a turn between two busy jobs without residue: from the decision to let go to the first instruction of
 * the next job on arena memory.  In the same run: a bare futex wake between two processes.  Prints JSON, microseconds.
 *
 * The two jobs are real processes with real arenas over one lane, and run the library's own trap and turn code.  Each
 * names its successor itself, which is otherwise the daemon's part and happens ahead of time. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "tests/library.h"

#define MOST 20000
struct shared {
  uint32_t word[128]; /* two futexes and two flags, each on a cache line of its own */
  uint64_t begin_ns;
  uint64_t bare[MOST], turn[MOST];
  uint32_t bares, turns;
};
static struct shared *sh;

static uint64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* A few microseconds of computing, so that neither processor falls asleep between two hand-overs. */
static void compute(volatile char *p, size_t bytes) {
  for (int k = 0; k < 40; k++)
    for (size_t i = 0; i < bytes; i += 64) p[i]++;
}

/* Exactly what two jobs do, without arenas: compute, wait until the other one sleeps, wake it, go to sleep. */
static void bare_side(int me, int rounds) {
  static char scratch[65536];
  uint32_t *mine = &sh->word[me * 64], *asleep = mine + 16;
  uint32_t *peers = &sh->word[(1 - me) * 64], *peer_asleep = peers + 16;
  for (int i = 0; i < rounds; i++) {
    cp_store(asleep, 1);
    while (cp_load(mine) == 0) cp_futex_wait(mine, 0, -1);
    uint64_t end = now_ns();
    cp_store(asleep, 0);
    cp_store(mine, 0);
    if (sh->bares < MOST && sh->begin_ns) sh->bare[sh->bares++] = end - sh->begin_ns;
    compute(scratch, sizeof scratch);
    while (!cp_load(peer_asleep)) {
    }
    sh->begin_ns = now_ns();
    cp_store(peers, 1);
    cp_futex_wake(peers);
  }
  cp_store(asleep, 1);
}

static void on_fault(int sig, siginfo_t *info, void *context) {
  (void)sig, (void)context;
  if (!cp_arenas_hold(&cp.arenas, info->si_addr)) abort();
  cp_trap(info->si_addr);
}

static void attach(int me, char *seat_table, int lane, int fd) {
  int device = memfd_create("device", 0);
  if (ftruncate(device, 16 * (off_t)CP_GIB)) abort();
  cp.seat_table = seat_table;
  cp.slot = (uint32_t)me;
  cp.seat = (struct cp_seat *)(seat_table + CP_BOARD_HEADER) + me;
  cp.fd = fd;
  cp_boundary_init(&cp.boundary);
  if (cp_arenas_init(&cp.arenas, CP_GIB, device, lane)) abort();
  struct sigaction a = {.sa_flags = SA_SIGINFO | SA_NODEFER};
  a.sa_sigaction = on_fault;
  sigaction(SIGSEGV, &a, NULL);
  cp.attached = 1;
}

static void turn_side(int me, int rounds) {
  char *base = cp.arenas.win[1].base;
  struct cp_seat *peer = (struct cp_seat *)(cp.seat_table + CP_BOARD_HEADER) + (1 - me);
  for (int i = 0; i < rounds; i++) {
    *(volatile char *)base = 1; /* the first instruction on arena memory */
    uint64_t end = now_ns();
    if (sh->turns < MOST && sh->begin_ns) sh->turn[sh->turns++] = end - sh->begin_ns;
    compute(base, 65536);
    while (!cp_load(&peer->want)) {
    }
    cp_store(&cp.seat->successor, (uint32_t)(2 - me));
    sh->begin_ns = now_ns();
    cp_turn_end(CP_BY_BOUNDARY);
  }
}

static int ascending(const void *a, const void *b) {
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return (x > y) - (x < y);
}

static void report(const char *name, uint64_t *v, uint32_t n, const char *end) {
  qsort(v, n, sizeof *v, ascending);
  printf("\"%s\": {\"n\": %u, \"p50_us\": %.2f, \"p90_us\": %.2f, \"p99_us\": %.2f}%s", name, n,
         (double)v[n / 2] / 1e3, (double)v[n * 9 / 10] / 1e3, (double)v[(size_t)n * 99 / 100] / 1e3, end);
}

static void drain(int fd) {
  char packet[64];
  while (recv(fd, packet, sizeof packet, 0) > 0) {
  }
  _exit(0);
}

int main(int argc, char **argv) {
  int rounds = argc > 1 ? atoi(argv[1]) : 3000;
  sh = mmap(NULL, sizeof *sh, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  char *seat_table = mmap(NULL, CP_BOARD_HEADER + 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  int lane = memfd_create("lane", 0), pair[2];
  if (ftruncate(lane, CP_GIB) || socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair)) return 1;
  pid_t daemon_ = fork(); /* reads the packets */
  if (!daemon_) {
    close(pair[0]);
    drain(pair[1]);
  }
  close(pair[1]);
  for (int pass = 0; pass < 3; pass++) { /* interleaved, so that both see the same weather */
    sh->begin_ns = 0;
    memset(sh->word, 0, sizeof sh->word);
    sh->word[0] = 1;
    pid_t child = fork();
    bare_side(child ? 0 : 1, rounds / 3);
    if (!child) _exit(0);
    waitpid(child, NULL, 0);
    sh->begin_ns = 0;
    memset(seat_table, 0, CP_BOARD_HEADER + 4096);
    pid_t jobs[2];
    for (int me = 0; me < 2; me++) {
      jobs[me] = fork();
      if (jobs[me]) continue;
      attach(me, seat_table, lane, pair[0]);
      if (me == 0) cp.seat->turn = 1;
      turn_side(me, rounds / 3);
      cp_store(&cp.seat->want, CP_WANT_TURN); /* so that the peer's last turn can end */
      _exit(0);
    }
    for (int me = 0; me < 2; me++) waitpid(jobs[me], NULL, 0);
  }
  close(pair[0]);
  waitpid(daemon_, NULL, 0);
  printf("{");
  report("bare_futex", sh->bare, sh->bares, ", ");
  report("hand_over", sh->turn, sh->turns, "}\n");
  return 0;
}
