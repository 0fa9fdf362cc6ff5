/* The memory of graphs: it is ordinary pool memory here, so that there is nothing to count or to give back. */
#include "stub.h"

CUresult cuDeviceGraphMemTrim(CUdevice device) {
  ENTER(cuDeviceGraphMemTrim);
  return device < 0 || device >= stub.devices ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}
CUresult cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attribute, void *value) {
  ENTER(cuDeviceGetGraphMemAttribute);
  if (device < 0 || device >= stub.devices) return CUDA_ERROR_INVALID_DEVICE;
  if (!value || attribute > CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH) return CUDA_ERROR_INVALID_VALUE;
  memset(value, 0, sizeof(uint64_t));
  return CUDA_SUCCESS;
}
CUresult cuDeviceSetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attribute, void *value) {
  ENTER(cuDeviceSetGraphMemAttribute);
  (void)attribute;
  if (device < 0 || device >= stub.devices) return CUDA_ERROR_INVALID_DEVICE;
  return value ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
