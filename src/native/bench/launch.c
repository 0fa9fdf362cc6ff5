/* What the gate costs a launch while the turn is held and nobody else wants it: a launch of an empty kernel through the
 * gate against the same launch without, alternately, in one run.  Needs libcarpool preloaded and a driver that can run the
 * text module "stub" (tools/emulator/).  Argument: rounds.  Prints JSON, nanoseconds per launch. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <time.h>

#include "bench/seat_table.h"

#define LAUNCHES 20000
#define MOST_ROUNDS 1001

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

static struct cp_seat *attach(void) {
  struct seat_table b = make_seat_table();
  int pair[2];
  NEED(!socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair));
  attach_to(b, 0, pair);
  __atomic_store_n(&seat_at(b, 0)->turn, 1, __ATOMIC_SEQ_CST);
  return seat_at(b, 0);
}

static void *set_up(void) {
  CUmodule module;
  void *driver = start_driver(&module);
  NEED(!CALL(driver, cuModuleGetFunction)(&nop, module, "nop"));
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
