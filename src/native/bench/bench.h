/* For benchmarks: the time in microseconds, and the median of what was measured. */
#ifndef CARPOOL_BENCH_H
#define CARPOOL_BENCH_H
#include <stddef.h>
#include <stdlib.h>
#include <time.h>

static inline double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static inline int ascending(const void *x, const void *y) {
  double d = *(const double *)x - *(const double *)y;
  return (d > 0) - (d < 0);
}

/* Sorts v. */
static inline double middle(double *v, size_t n) {
  qsort(v, n, sizeof *v, ascending);
  return v[n / 2];
}
#endif
