/* Null kernels: they take their place in their stream and the time of EMULATOR_KERNEL_US, and write nothing.
 *
 * A stream's thread sleeps that long.  What it sleeps too long is taken off the following null kernels, so that many of
 * them take exactly as many times as long. */
#include "kernel.h"
#include <stdio.h>
#include <time.h>

static uint64_t kernel_ns;

void stub_read_kernel_time(void) {
  const char *text = getenv("EMULATOR_KERNEL_US");
  char *end;
  double us = text ? strtod(text, &end) : 0;
  if (text && (end == text || *end || !(us >= 0 && us <= 1e9))) {
    fprintf(stderr, "emulated GPU: EMULATOR_KERNEL_US is not a number of microseconds: %s\n", text);
    abort();
  }
  kernel_ns = (uint64_t)(us * 1000);
}

static CUresult pass_time(void *unused) {
  enum { MOST_OWED_NS = 1000000 }; /* not what a process that was stopped for seconds slept too long */
  static __thread uint64_t owed;
  (void)unused;
  if (owed >= kernel_ns) return owed -= kernel_ns, CUDA_SUCCESS;
  uint64_t end = stub_now_ns() + kernel_ns - owed;
  struct timespec until = {.tv_sec = (time_t)(end / 1000000000u), .tv_nsec = (long)(end % 1000000000u)};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL)) continue;
  owed = stub_now_ns() - end;
  if (owed > MOST_OWED_NS) owed = MOST_OWED_NS;
  return CUDA_SUCCESS;
}

struct stub_op *stub_null_op(void) {
  return stub_op(CU_GRAPH_NODE_TYPE_KERNEL, kernel_ns ? pass_time : NULL, NULL, 0);
}
