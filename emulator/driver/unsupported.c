/* Calls that exist and are refused, and those about the memory of graphs, which is ordinary pool memory here. */
#include "stub.h"

CUresult cuMemPoolExportToShareableHandle(void *shareable, CUmemoryPool pool, CUmemAllocationHandleType type,
                                          unsigned long long flags) {
  ENTER(cuMemPoolExportToShareableHandle);
  (void)shareable, (void)pool, (void)type, (void)flags;
  return CUDA_ERROR_NOT_SUPPORTED;
}
CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool *pool, void *shareable, CUmemAllocationHandleType type,
                                            unsigned long long flags) {
  ENTER(cuMemPoolImportFromShareableHandle);
  (void)pool, (void)shareable, (void)type, (void)flags;
  return CUDA_ERROR_NOT_SUPPORTED;
}
CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData *data, CUdeviceptr address) {
  ENTER(cuMemPoolExportPointer);
  (void)data, (void)address;
  return CUDA_ERROR_NOT_SUPPORTED;
}
CUresult cuMemPoolImportPointer(CUdeviceptr *address, CUmemoryPool pool, CUmemPoolPtrExportData *data) {
  ENTER(cuMemPoolImportPointer);
  (void)address, (void)pool, (void)data;
  return CUDA_ERROR_NOT_SUPPORTED;
}
CUresult cuGraphAddMemAllocNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                                CUDA_MEM_ALLOC_NODE_PARAMS *params) {
  ENTER(cuGraphAddMemAllocNode);
  (void)node, (void)graph, (void)dependencies, (void)count, (void)params;
  return CUDA_ERROR_NOT_SUPPORTED;
}
CUresult cuGraphAddMemFreeNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                               CUdeviceptr address) {
  ENTER(cuGraphAddMemFreeNode);
  (void)node, (void)graph, (void)dependencies, (void)count, (void)address;
  return CUDA_ERROR_NOT_SUPPORTED;
}
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
/* The tables are private to the CUDA runtime, which therefore does not run on the stub. */
CUresult cuGetExportTable(const void **table, const CUuuid *id) {
  ENTER_EARLY(cuGetExportTable);
  (void)id;
  if (table) *table = NULL;
  return CUDA_ERROR_NOT_FOUND;
}
