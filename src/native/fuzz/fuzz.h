/* Folder fuzz/: programs that feed the library what other processes may write: packets, words of seats, headers of weights,
 * descriptors, and lengths.  Each target_NAME.c is one of them, linked with driver.c; none is part of the library. */
#ifndef CARPOOL_FUZZ_H
#define CARPOOL_FUZZ_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* One input.  A target takes what it wants of the bytes, and must not keep them.  It ends the process where something is
 * wrong, and returns 0. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* What is left of an input.  Beyond its end all numbers are 0. */
struct input {
  const uint8_t *at;
  size_t left;
};

static inline bool input_ends(const struct input *in) { return !in->left; }

/* A number of `bytes` bytes, little-endian. */
static inline uint64_t draw(struct input *in, size_t bytes) {
  uint64_t value = 0;
  size_t n = bytes < in->left ? bytes : in->left;
  memcpy(&value, in->at, n);
  in->at += n;
  in->left -= n;
  return value;
}

static inline uint32_t draw_below(struct input *in, uint32_t limit) { return (uint32_t)draw(in, 1) % limit; }
#endif
