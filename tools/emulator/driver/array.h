/* Arrays are pitched device memory here. */
#ifndef CARPOOL_STUB_ARRAY_H
#define CARPOOL_STUB_ARRAY_H
#include "stub.h"
struct CUarray_st {
  CUDA_ARRAY3D_DESCRIPTOR descriptor;
  char *base;
  size_t pitch, rows, bytes;
  bool level; /* of a mipmapped array, which owns the memory */
};
#endif
