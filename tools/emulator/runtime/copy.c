/* Copies and fills.  When they wait is the driver's matter, whose rules are the runtime's. */
#include "internal.h"

static int copy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind) {
  switch (kind) {
    case cudaMemcpyHostToDevice: return cuMemcpyHtoD_v2(runtime_address(to), from, bytes);
    case cudaMemcpyDeviceToHost: return cuMemcpyDtoH_v2(to, runtime_address(from), bytes);
    case cudaMemcpyDeviceToDevice: return cuMemcpyDtoD_v2(runtime_address(to), runtime_address(from), bytes);
    case cudaMemcpyHostToHost:
    case cudaMemcpyDefault: return cuMemcpy(runtime_address(to), runtime_address(from), bytes);
    default: return cudaErrorInvalidMemcpyDirection;
  }
}
cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind) {
  WITH_CONTEXT(copy(to, from, bytes, kind));
}

static int copy_async(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, CUstream stream) {
  switch (kind) {
    case cudaMemcpyHostToDevice: return cuMemcpyHtoDAsync_v2(runtime_address(to), from, bytes, stream);
    case cudaMemcpyDeviceToHost: return cuMemcpyDtoHAsync_v2(to, runtime_address(from), bytes, stream);
    case cudaMemcpyDeviceToDevice: return cuMemcpyDtoDAsync_v2(runtime_address(to), runtime_address(from), bytes, stream);
    case cudaMemcpyHostToHost:
    case cudaMemcpyDefault: return cuMemcpyAsync(runtime_address(to), runtime_address(from), bytes, stream);
    default: return cudaErrorInvalidMemcpyDirection;
  }
}
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream) {
  WITH_CONTEXT(copy_async(to, from, bytes, kind, stream));
}

/* What the kind says of one side. */
static CUmemorytype side(enum cudaMemcpyKind kind, bool host) {
  if (kind == cudaMemcpyDefault) return CU_MEMORYTYPE_UNIFIED;
  return host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
}
static int copy_rows(CUDA_MEMCPY2D *rows, enum cudaMemcpyKind kind, CUstream stream) {
  if ((unsigned)kind > cudaMemcpyDefault) return cudaErrorInvalidMemcpyDirection;
  if (rows->WidthInBytes > rows->dstPitch || rows->WidthInBytes > rows->srcPitch) return cudaErrorInvalidPitchValue;
  rows->srcMemoryType = side(kind, kind == cudaMemcpyHostToHost || kind == cudaMemcpyHostToDevice);
  rows->dstMemoryType = side(kind, kind == cudaMemcpyHostToHost || kind == cudaMemcpyDeviceToHost);
  return rows->WidthInBytes && rows->Height ? (int)cuMemcpy2DAsync_v2(rows, stream) : cudaSuccess;
}
cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height,
                              enum cudaMemcpyKind kind, cudaStream_t stream) {
  CUDA_MEMCPY2D rows = {.srcHost = from, .srcDevice = runtime_address(from), .srcPitch = from_pitch,
                        .dstHost = to, .dstDevice = runtime_address(to), .dstPitch = to_pitch,
                        .WidthInBytes = width, .Height = height};
  WITH_CONTEXT(copy_rows(&rows, kind, stream));
}

static int copy_peer(void *to, int to_device, const void *from, int from_device, size_t bytes, CUstream stream) {
  CUcontext target, source;
  int result = runtime_primary(to_device, &target);
  if (!result) result = runtime_primary(from_device, &source);
  return result ? result : (int)cuMemcpyPeerAsync(runtime_address(to), target, runtime_address(from), source, bytes, stream);
}
cudaError_t cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device, size_t bytes, cudaStream_t stream) {
  WITH_CONTEXT(copy_peer(to, to_device, from, from_device, bytes, stream));
}

cudaError_t cudaMemset(void *to, int value, size_t bytes) {
  WITH_CONTEXT(cuMemsetD8_v2(runtime_address(to), (unsigned char)value, bytes));
}
cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream) {
  WITH_CONTEXT(cuMemsetD8Async(runtime_address(to), (unsigned char)value, bytes, stream));
}
