/* The smallest test harness that says where it failed. */
#ifndef CARPOOL_TEST_CHECK_H
#define CARPOOL_TEST_CHECK_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdio.h>
#include <stdlib.h>
#define CHECK_THAT(x) \
  do { \
    if (!(x)) { \
      fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #x); \
      exit(1); \
    } \
  } while (0)

static unsigned seed_ = 1;
static inline unsigned next_random(void) { return (seed_ = seed_ * 1103515245u + 12345u) >> 8; }
#endif
