/* cuBLAS: copies between host and device, which the driver makes.  A matrix lies in columns, a vector in columns of one. */
#include "library.h"

enum status { SUCCESS = 0, INVALID_VALUE = 7, MAPPING_ERROR = 11 };

static enum status copy(size_t width, int columns, const void *from, size_t from_pitch, void *to, size_t to_pitch,
                        CUstream stream) {
  CUDA_MEMCPY2D copied = {
    .srcMemoryType = CU_MEMORYTYPE_UNIFIED, .srcDevice = (CUdeviceptr)from, .srcPitch = from_pitch,
    .dstMemoryType = CU_MEMORYTYPE_UNIFIED, .dstDevice = (CUdeviceptr)to, .dstPitch = to_pitch,
    .WidthInBytes = width, .Height = (size_t)columns,
  };
  if (!width || !columns) return SUCCESS;
  return cuMemcpy2DAsync_v2(&copied, stream) ? MAPPING_ERROR : SUCCESS;
}

static enum status vector(int count, int bytes, const void *from, int from_step, void *to, int to_step, CUstream stream) {
  if (count < 0 || bytes <= 0 || from_step <= 0 || to_step <= 0) return INVALID_VALUE;
  return copy((size_t)bytes, count, from, (size_t)from_step * (size_t)bytes, to, (size_t)to_step * (size_t)bytes, stream);
}
static enum status matrix(int rows, int columns, int bytes, const void *from, int from_rows, void *to, int to_rows,
                          CUstream stream) {
  if (rows < 0 || columns < 0 || bytes <= 0 || from_rows <= 0 || to_rows <= 0) return INVALID_VALUE;
  return copy((size_t)rows * (size_t)bytes, columns, from, (size_t)from_rows * (size_t)bytes, to,
              (size_t)to_rows * (size_t)bytes, stream);
}

#define VECTOR(name)                                                                                               \
  EXPORT enum status name(int count, int bytes, const void *from, int from_step, void *to, int to_step, CUstream stream) { \
    return vector(count, bytes, from, from_step, to, to_step, stream);                                            \
  }
VECTOR(cublasSetVectorAsync)
VECTOR(cublasGetVectorAsync)
#define MATRIX(name)                                                                                               \
  EXPORT enum status name(int rows, int columns, int bytes, const void *from, int from_rows, void *to, int to_rows, \
                          CUstream stream) {                                                                      \
    return matrix(rows, columns, bytes, from, from_rows, to, to_rows, stream);                                    \
  }
MATRIX(cublasSetMatrixAsync)
MATRIX(cublasGetMatrixAsync)
