/* Fills.  They never wait, unless the target is host memory. */
#include "copy.h"

struct area { char *to; size_t pitch, width, height; unsigned value, element; };

static bool inside(const struct area *area) {
  for (size_t y = 0; y < area->height; y++)
    if (!stub_reaches((CUdeviceptr)(area->to + y * area->pitch), area->width * area->element, true)) return false;
  return true;
}

struct row { char *to; const struct area *area; };
static void fill_piece(void *row, size_t at, size_t bytes) {
  const struct area *area = ((struct row *)row)->area;
  char *to = ((struct row *)row)->to + at;
  if (area->element == 1) memset(to, (int)area->value, bytes);
  else
    for (size_t x = 0; x < bytes; x += area->element) memcpy(to + x, &area->value, area->element);
}
static CUresult run(void *payload) {
  struct area *area = payload;
  CUresult result = CUDA_SUCCESS;
  for (size_t y = 0; y < area->height && !result; y++) {
    struct row row = {area->to + y * area->pitch, area};
    struct stub_access place = {row.to, .write = true};
    result = stub_by_pieces(&place, 1, area->width * area->element, fill_piece, &row);
  }
  return result;
}

struct stub_op *stub_fill_op(CUdeviceptr to, size_t pitch, unsigned value, unsigned element, size_t width, size_t height) {
  struct area area = {(char *)to, pitch, width, height, value, element};
  return stub_op(CU_GRAPH_NODE_TYPE_MEMSET, run, &area, sizeof area);
}

static CUresult fill(CUstream stream, CUdeviceptr to, size_t pitch, unsigned value, unsigned element, size_t width,
                     size_t height, bool wait) {
  struct area area = {(char *)to, pitch, width, height, value, element};
  if (!width || !height) return CUDA_SUCCESS;
  if (to % element || !inside(&area)) return CUDA_ERROR_INVALID_VALUE;
  struct stub_op *op = stub_fill_op(to, pitch, value, element, width, height);
  return wait && stub_is_pinned((void *)to) ? stub_submit_wait(stream, op) : stub_submit(stream, op);
}

#define FILLS(bits, type, bytes)                                                                                        \
  DEFAULT_CALL(cuMemsetD##bits##_v2, (to, value, count), CUdeviceptr to, type value, size_t count) {                    \
    return fill(stream, to, 0, value, bytes, count, 1, true);                                                           \
  }                                                                                                                     \
  DEFAULT_CALL(cuMemsetD2D##bits##_v2, (to, pitch, value, width, height), CUdeviceptr to, size_t pitch, type value,     \
               size_t width, size_t height) {                                                                           \
    return fill(stream, to, pitch, value, bytes, width, height, true);                                                  \
  }                                                                                                                     \
  STREAM_CALL(cuMemsetD##bits##Async, (to, value, count, stream), CUdeviceptr to, type value, size_t count,             \
              CUstream stream) {                                                                                        \
    return fill(stream, to, 0, value, bytes, count, 1, false);                                                          \
  }                                                                                                                     \
  STREAM_CALL(cuMemsetD2D##bits##Async, (to, pitch, value, width, height, stream), CUdeviceptr to, size_t pitch,        \
              type value, size_t width, size_t height, CUstream stream) {                                               \
    return fill(stream, to, pitch, value, bytes, width, height, false);                                                 \
  }
FILLS(8, unsigned char, 1)
FILLS(16, unsigned short, 2)
FILLS(32, unsigned int, 4)
