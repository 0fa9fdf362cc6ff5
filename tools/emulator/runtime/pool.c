/* Memory in stream order, and pools.  Attributes and descriptions of access have the driver's numbers and layouts. */
#include "internal.h"

cudaError_t cudaMallocAsync(void **memory, size_t bytes, cudaStream_t stream) {
  WITH_CONTEXT(cuMemAllocAsync((CUdeviceptr *)memory, bytes, stream));
}
cudaError_t cudaFreeAsync(void *memory, cudaStream_t stream) { WITH_CONTEXT(cuMemFreeAsync(runtime_address(memory), stream)); }
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *pool, int device) { WITH_DRIVER(cuDeviceGetDefaultMemPool(pool, device)); }
cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr attribute, void *value) {
  WITH_DRIVER(cuMemPoolGetAttribute(pool, (CUmemPool_attribute)attribute, value));
}
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr attribute, void *value) {
  WITH_DRIVER(cuMemPoolSetAttribute(pool, (CUmemPool_attribute)attribute, value));
}
cudaError_t cudaMemPoolSetAccess(cudaMemPool_t pool, const struct cudaMemAccessDesc *access, size_t count) {
  WITH_DRIVER(cuMemPoolSetAccess(pool, (const CUmemAccessDesc *)access, count));
}
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t keep) { WITH_DRIVER(cuMemPoolTrimTo(pool, keep)); }
