/* Stands in for PyTorch's caching allocator: memory that this library asks for comes in segments of Carpool's. */
#include "cuda/driver/driver.h"

int segment_alloc(CUdeviceptr *address, size_t bytes);
int segment_free(CUdeviceptr address);

int segment_alloc(CUdeviceptr *address, size_t bytes) {
  CUresult result = cuMemAlloc_v2(address, bytes);
  __asm__ volatile("" ::: "memory"); /* no jump in place of the call: who calls is seen by the return address */
  return (int)result;
}

int segment_free(CUdeviceptr address) {
  CUresult result = cuMemFree_v2(address);
  __asm__ volatile("" ::: "memory");
  return (int)result;
}
