/* What cuDNN's files share.  Numbers and layouts are cuDNN's binary interface, by our own declarations. */
#ifndef EMULATOR_CUDNN_H
#define EMULATOR_CUDNN_H
#include "library.h"

enum status { SUCCESS = 0, BAD_PARAMETER = 2000, NOT_SUPPORTED = 3000 };
enum { DIMENSIONS = 8 }; /* the most that a tensor has */

/* The shape of a tensor or of a convolution's filter, which has a format and no strides. */
struct shape {
  int type, format, count;
  int sizes[DIMENSIONS], strides[DIMENSIONS];
};
size_t element_bytes(int type);
/* Rows and columns as cuDNN describes a matrix: three dimensions, the first of size 1. */
void describe_matrix(struct shape *shape, int type, int rows, int columns);
#endif
