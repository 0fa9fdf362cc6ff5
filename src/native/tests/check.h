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

/* How often something is repeated: `src/native/run_tests.py --long` and the sanitizers repeat more.  What is repeated is the same. */
#ifdef LONG_ROUNDS
#define SHORT_OR_LONG(short_, long_) (long_)
#else
#define SHORT_OR_LONG(short_, long_) (short_)
#endif

static unsigned seed_ = 1;
static inline unsigned next_random(void) { return (seed_ = seed_ * 1103515245u + 12345u) >> 8; }
#endif
