/* Stand-ins for a CUDA runtime and for PyTorch's allocator, one library each: whose call is it that asks for memory? */
#include "driver.h"

CUresult fake_cudaMalloc(CUdeviceptr *address, size_t bytes);
CUresult allocator_through_runtime(CUresult (*runtime)(CUdeviceptr *, size_t), CUdeviceptr *address, size_t bytes);
CUresult allocator_directly(CUresult (*driver)(CUdeviceptr *, size_t), CUdeviceptr *address, size_t bytes);

#ifdef LIBCUDART
/* Linked to nothing: the call goes to whoever stands first. */
CUresult fake_cudaMalloc(CUdeviceptr *address, size_t bytes) {
  CUresult r = cuMemAlloc_v2(address, bytes);
  __asm__ volatile("" ::: "memory"); /* no jump in place of the call */
  return r;
}
#else
CUresult allocator_through_runtime(CUresult (*runtime)(CUdeviceptr *, size_t), CUdeviceptr *address, size_t bytes) {
  CUresult r = runtime(address, bytes);
  __asm__ volatile("" ::: "memory");
  return r;
}
CUresult allocator_directly(CUresult (*driver)(CUdeviceptr *, size_t), CUdeviceptr *address, size_t bytes) {
  CUresult r = driver(address, bytes);
  __asm__ volatile("" ::: "memory");
  return r;
}
/* As in a second copy of the driver, of which the gate knows nothing. */
CUresult cuLaunchGrid(CUfunction function, int width, int height) {
  (void)function, (void)width, (void)height;
  return CUDA_ERROR_NOT_SUPPORTED;
}
#endif
