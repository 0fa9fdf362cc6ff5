/* What the gate costs a launch while the turn is held and nobody else wants it: a launch of an empty kernel through the
 * gate against the same launch without, alternately, in one run.  Needs libcarpool preloaded and a driver that can run the
 * text module "stub" (tests/stub).  Argument: rounds.  Prints JSON, nanoseconds per launch. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "driver.h"
#include "seat.h"

#define LAUNCHES 20000
#define MOST_ROUNDS 1001
#define NEED(x) \
  if (!(x)) { \
    fprintf(stderr, "launch: line %d: not true: %s\n", __LINE__, #x); \
    exit(1); \
  }

typedef __typeof__(cuLaunchKernel) *launch_fn;
static CUfunction nop;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static double measure(launch_fn launch) {
  double begin = now();
  for (int i = 0; i < LAUNCHES; i++) launch(nop, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
  return (now() - begin) / LAUNCHES;
}

static int ascending(const void *x, const void *y) {
  double d = *(const double *)x - *(const double *)y;
  return (d > 0) - (d < 0);
}
static double middle(double *v, int n) {
  qsort(v, (size_t)n, sizeof *v, ascending);
  return v[n / 2];
}

/* The daemon's part: a board with one seat that has the turn. */
static struct cp_seat *attach(void) {
  int pair[2], board_fd = memfd_create("board", 0);
  size_t bytes = CP_BOARD_HEADER + CP_SEATS * sizeof(struct cp_seat);
  NEED(!ftruncate(board_fd, (off_t)bytes) && !socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair));
  char *board = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, board_fd, 0);
  *(struct cp_board_header *)board = (struct cp_board_header){CP_BOARD_MAGIC, CP_PROTOCOL, CP_KIND_CUDA};
  struct cp_packet p = {.type = CP_SETUP};
  union {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(sizeof(int))];
  } control = {.align = {.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS}};
  struct iovec v = {.iov_base = &p, .iov_len = sizeof p};
  struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
  memcpy(CMSG_DATA(&control.align), &board_fd, sizeof board_fd);
  int (*cp_attach)(int);
  *(void **)&cp_attach = dlsym(RTLD_DEFAULT, "cp_attach");
  NEED(cp_attach && sendmsg(pair[1], &m, 0) == (ssize_t)sizeof p && cp_attach(pair[0]) == 0);
  struct cp_seat *seat = (struct cp_seat *)(board + CP_BOARD_HEADER);
  __atomic_store_n(&seat->turn, 1, __ATOMIC_SEQ_CST);
  return seat;
}

static void *call(void *driver, const char *name) {
  void *pointer = dlsym(driver, name);
  NEED(pointer);
  return pointer;
}

static void *set_up(void) {
  CUcontext context;
  CUmodule module;
  void *driver = dlopen("libcuda.so.1", RTLD_NOW);
  NEED(driver);
  NEED(!((__typeof__(cuInit) *)call(driver, "cuInit"))(0));
  NEED(!((__typeof__(cuDevicePrimaryCtxRetain) *)call(driver, "cuDevicePrimaryCtxRetain"))(&context, 0));
  NEED(!((__typeof__(cuCtxSetCurrent) *)call(driver, "cuCtxSetCurrent"))(context));
  NEED(!((__typeof__(cuModuleLoadData) *)call(driver, "cuModuleLoadData"))(&module, "stub"));
  NEED(!((__typeof__(cuModuleGetFunction) *)call(driver, "cuModuleGetFunction"))(&nop, module, "nop"));
  return driver;
}

int main(int argc, char **argv) {
  static double bare[MOST_ROUNDS], gated[MOST_ROUNDS], over[MOST_ROUNDS], loose[MOST_ROUNDS];
  int rounds = argc > 1 ? atoi(argv[1]) : 101;
  NEED(rounds > 0 && rounds <= MOST_ROUNDS);
  void *driver = set_up();
  setenv("CARPOOL_DISABLE", "1", 1);
  launch_fn plain = (launch_fn)call(driver, "cuLaunchKernel");
  unsetenv("CARPOOL_DISABLE");
  launch_fn through = (launch_fn)call(driver, "cuLaunchKernel");
  NEED(plain != through);
  for (int i = 0; i < rounds; i++) {
    double without = measure(plain);
    loose[i] = measure(through) - without;
  }
  struct cp_seat *seat = attach();
  NEED(!through(nop, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL) && seat->turns == 1);
  for (int i = 0; i < rounds; i++) {
    bare[i] = measure(plain);
    gated[i] = measure(through);
    over[i] = gated[i] - bare[i];
  }
  NEED(seat->turns == 1);
  printf("{\"bare_ns\": %.2f, \"gated_ns\": %.2f, \"over_ns\": %.2f, \"over_unattached_ns\": %.2f}\n", middle(bare, rounds),
         middle(gated, rounds), middle(over, rounds), middle(loose, rounds));
  return 0;
}
