/* Memory of the device and of the host, and what an address belongs to. */
#include "internal.h"

static int allocate(void **memory, size_t bytes) {
  CUdeviceptr address = 0;
  if (!memory) return cudaErrorInvalidValue;
  CUresult result = bytes ? cuMemAlloc_v2(&address, bytes) : CUDA_SUCCESS;
  if (!result) *memory = (void *)address;
  return result;
}
cudaError_t cudaMalloc(void **memory, size_t bytes) { WITH_CONTEXT(allocate(memory, bytes)); }
cudaError_t cudaFree(void *memory) { WITH_CONTEXT(memory ? cuMemFree_v2(runtime_address(memory)) : CUDA_SUCCESS); }
cudaError_t cudaHostAlloc(void **memory, size_t bytes, unsigned int flags) { WITH_CONTEXT(cuMemHostAlloc(memory, bytes, flags)); }
cudaError_t cudaFreeHost(void *memory) { WITH_CONTEXT(memory ? cuMemFreeHost(memory) : CUDA_SUCCESS); }
cudaError_t cudaHostRegister(void *memory, size_t bytes, unsigned int flags) {
  WITH_CONTEXT(cuMemHostRegister_v2(memory, bytes, flags));
}
cudaError_t cudaHostUnregister(void *memory) { WITH_CONTEXT(cuMemHostUnregister(memory)); }
static int seen_from_device(void **on_device, void *memory, unsigned int flags) {
  CUdeviceptr address = 0;
  if (!on_device) return cudaErrorInvalidValue;
  CUresult result = cuMemHostGetDevicePointer_v2(&address, memory, flags);
  if (!result) *on_device = (void *)address;
  return result;
}
cudaError_t cudaHostGetDevicePointer(void **on_device, void *memory, unsigned int flags) {
  WITH_CONTEXT(seen_from_device(on_device, memory, flags));
}
cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total) { WITH_CONTEXT(cuMemGetInfo_v2(free_bytes, total)); }

/* The driver answers zeros for what it does not know: memory of the host that nobody has registered. */
static int describe(struct cudaPointerAttributes *attributes, const void *memory) {
  unsigned int type = 0, managed = 0;
  int device = 0;
  void *on_device = NULL, *on_host = NULL;
  CUpointer_attribute asked[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                 CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
                                 CU_POINTER_ATTRIBUTE_HOST_POINTER};
  void *answers[] = {&type, &managed, &device, &on_device, &on_host};
  if (!attributes) return cudaErrorInvalidValue;
  CUresult result = cuPointerGetAttributes(sizeof asked / sizeof *asked, asked, answers, runtime_address(memory));
  if (result) return result;
  enum cudaMemoryType plain = type == CU_MEMORYTYPE_HOST ? cudaMemoryTypeHost : cudaMemoryTypeDevice;
  *attributes = (struct cudaPointerAttributes){.type = managed ? cudaMemoryTypeManaged : plain, .device = device,
                                               .devicePointer = on_device, .hostPointer = on_host};
  if (!type)
    *attributes = (struct cudaPointerAttributes){.type = cudaMemoryTypeUnregistered, .device = cudaInvalidDeviceId,
                                                 .hostPointer = (void *)memory};
  return cudaSuccess;
}
cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *memory) {
  WITH_CONTEXT(describe(attributes, memory));
}
