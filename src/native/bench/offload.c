/* Offload and restore of persistent memory against plain copies of the same bytes in both directions, in one run and
 * with warm pages, and the time until computing goes on: with the order of use known, and after a restore of everything.
 * Prints JSON. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "bench/bench.h"

#include "tests/library.h"

#define ROUNDS 7
#define WARM 3 /* rounds before: pages come to exist, the order is learned */
static int daemon_fd;

static void on_fault(int sig, siginfo_t *info, void *context) {
  (void)sig, (void)context;
  if (!cp_arenas_hold(&cp.arenas, info->si_addr)) abort();
  cp_trap(info->si_addr);
}

static void attach(void) {
  int pair[2], lane = memfd_create("lane", 0), buffer = memfd_create("bank", 0), store = memfd_create("store", 0);
  off_t span = CP_WINDOWS * (off_t)CP_GIB;
  if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair)) abort();
  if (ftruncate(lane, CP_GIB) || ftruncate(buffer, span) || ftruncate(store, span + span / CP_CHUNK)) abort();
  cp.seat_table = mmap(NULL, CP_BOARD_HEADER + 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  cp.seat = (struct cp_seat *)(cp.seat_table + CP_BOARD_HEADER);
  cp.seat->p_limit = CP_GIB;
  cp.fd = pair[0];
  daemon_fd = pair[1];
  cp_boundary_init(&cp.boundary);
  if (cp_arenas_init(&cp.arenas, CP_GIB, buffer, lane)) abort();
  if (cp_host_init(&cp.arenas.host, (size_t)span, store) || cp_order_init(&cp.order, cp.arenas.host.chunks)) abort();
  struct sigaction a = {.sa_flags = SA_SIGINFO | SA_NODEFER};
  a.sa_sigaction = on_fault;
  sigaction(SIGSEGV, &a, NULL);
  if (cp_helper_start()) abort();
  cp_store(&cp.attached, 1);
}

static void wait_for(uint32_t type) {
  struct cp_packet p;
  do
    if (recv(daemon_fd, &p, sizeof p, 0) != sizeof p) abort();
  while (p.type != type);
  if (type == CP_OFFLOADED && p.a) abort();
}

static void give(void) {
  cp_store(&cp.seat->turn_start_us, cp_now_us());
  cp_store(&cp.seat->turn, 1);
}

/* Let go, and out: from the request to the answer. */
static double out(void) {
  cp_turn_end(CP_BY_BOUNDARY);
  double begin = now();
  cp_store(&cp.seat->offload, CP_OFFLOAD_ASKED);
  cp_notify(cp.seat);
  wait_for(CP_OFFLOADED);
  cp_store(&cp.seat->offload, CP_OFFLOAD_NO);
  return now() - begin;
}

struct figures {
  double out[ROUNDS], back[ROUNDS], first[ROUNDS], use[ROUNDS], whole[ROUNDS], plain[ROUNDS];
};

static void use_all(volatile char *p, size_t bytes) {
  for (size_t at = 0; at < bytes; at += CP_PAGE) p[at]++;
}

/* back: nothing is done but restoring; use: every page is used in the learned order while the rest comes. */
static void one_round(struct figures *f, char *p, size_t bytes, char *copy[2], int r, int slot) {
  f->out[slot] = out();
  give();
  double begin = now();
  *(volatile char *)p = 1;
  f->first[slot] = now() - begin;
  if (r >= 0)
    while (cp_load(&cp.seat->stored)) cp_futex_wait(&cp.seat->bell, cp_load(&cp.seat->bell), 200);
  f->back[slot] = now() - begin;
  use_all(p, bytes);
  out();
  give();
  begin = now();
  use_all(p, bytes);
  f->use[slot] = now() - begin;
  out(); /* everything first, as one would without the order */
  begin = now();
  cp_arenas_restore_begin(&cp.arenas);
  for (size_t k = cp_host_next(&cp.arenas.host, 0); k < cp.arenas.host.chunks; k = cp_host_next(&cp.arenas.host, k + 1))
    cp_arenas_bring(&cp.arenas, k);
  f->whole[slot] = now() - begin;
  give();
  *(volatile char *)p = 1;
  begin = now();
  memcpy(copy[0], copy[1], bytes);
  memcpy(copy[1], copy[0], bytes);
  f->plain[slot] = now() - begin;
}

static void measure(size_t bytes, const char *end) {
  static struct figures f;
  size_t need;
  char *copy[2], *p = cp_pool_alloc(&cp.arenas.win[0].pool, bytes, CP_GIB, 0, &need);
  for (int i = 0; i < 2; i++) {
    copy[i] = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(copy[i], i, bytes);
  }
  give();
  memset(p, 1, bytes);
  for (int r = -WARM; r < ROUNDS; r++) one_round(&f, p, bytes, copy, r, r < 0 ? 0 : r);
  cp_turn_end(CP_BY_BOUNDARY);
  double o = middle(f.out, ROUNDS), b = middle(f.back, ROUNDS), first = middle(f.first, ROUNDS), use = middle(f.use, ROUNDS), whole = middle(f.whole, ROUNDS),
         plain = middle(f.plain, ROUNDS);
  printf("{\"mib\": %zu, \"offload_us\": %.0f, \"restore_us\": %.0f, \"memcpy_us\": %.0f, \"rate\": %.3f, "
         "\"first_use_us\": %.0f, \"whole_first_us\": %.0f, \"use_while_restoring_us\": %.0f, \"demanded\": %lu}%s",
         bytes >> 20, o, b, plain, plain / (o + b), first, whole, use, (unsigned long)cp.seat->demanded, end);
  fflush(stdout);
  cp_pool_free(&cp.arenas.win[0].pool, p);
  for (int i = 0; i < 2; i++) munmap(copy[i], bytes);
}

int main(int argc, char **argv) {
  size_t most = argc > 1 ? (size_t)atoi(argv[1]) : 1024;
  attach();
  printf("{\"parking\": %s, \"sizes\": [", cp.arenas.parking ? "true" : "false");
  for (size_t mib = 64; mib <= most; mib *= 4) measure((mib < 1024 ? mib : 1000) * CP_MIB, mib * 4 <= most ? ", " : "]}\n");
  return 0;
}
