/* Stand-ins for a CUDA runtime, for PyTorch's allocator, which ask for memory, and for NCCL; one library each. */
#include "cuda/driver/driver.h"

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
int cudaMalloc(void **address, size_t bytes);
int cudaMalloc(void **address, size_t bytes) { return fake_cudaMalloc((CUdeviceptr *)address, bytes) == CUDA_SUCCESS ? 0 : 2; }
#elif defined LIBNCCL
struct id {
  char bytes[128];
};
int ncclCommInitRank(void **communicator, int ranks, struct id id, int rank);
int ncclCommInitAll(void **communicators, int ranks, const int *devices);
int ncclCommCount(const void *communicator, int *count);

int ncclCommInitRank(void **communicator, int ranks, struct id id, int rank) {
  *communicator = communicator;
  return ranks * 1000 + rank * 100 + id.bytes[0] + id.bytes[127];
}
int ncclCommInitAll(void **communicators, int ranks, const int *devices) {
  (void)communicators;
  return devices[ranks - 1];
}
int ncclCommCount(const void *communicator, int *count) {
  *count = 1;
  return communicator == 0;
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
/* As in a driver that is newer than the gate's tables. */
CUresult cuLaunchKernel_v9(void) { return CUDA_ERROR_NOT_SUPPORTED; }
/* As in a second copy of the driver, of which the gate knows nothing. */
CUresult cuLaunchGrid(CUfunction function, int width, int height) {
  (void)function, (void)width, (void)height;
  return CUDA_ERROR_NOT_SUPPORTED;
}
#endif
