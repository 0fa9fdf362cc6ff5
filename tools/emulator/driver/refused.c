/* Calls that exist and are refused: they are counted as unexpected.  Those that say so themselves where the reason lies
 * elsewhere are not here. */
#include "extra.h"
#include "null_work.h"
#include "stub.h"
#pragma GCC diagnostic ignored "-Wunused-parameter"

#define REFUSE(name, ...)                                                       \
  CUresult name(__VA_ARGS__) {                                                  \
    ENTER(name);                                                                \
    emulator_unexpected(#name);                                                 \
    return CUDA_ERROR_NOT_SUPPORTED;                                            \
  }
#define REFUSE_PTSZ(name, ...) REFUSE(name, __VA_ARGS__) REFUSE(name##_ptsz, __VA_ARGS__)

/* sharing of pools, and of memory by other handles than descriptors of cuMemCreate */
REFUSE(cuMemPoolExportToShareableHandle, void *shareable, CUmemoryPool pool, CUmemAllocationHandleType type,
       unsigned long long flags)
REFUSE(cuMemPoolImportFromShareableHandle, CUmemoryPool *pool, void *shareable, CUmemAllocationHandleType type,
       unsigned long long flags)
REFUSE(cuMemPoolExportPointer, CUmemPoolPtrExportData *data, CUdeviceptr address)
REFUSE(cuMemPoolImportPointer, CUdeviceptr *address, CUmemoryPool pool, CUmemPoolPtrExportData *data)
REFUSE(cuMemGetHandleForAddressRange, void *handle, CUdeviceptr address, size_t bytes, CUmemRangeHandleType type,
       unsigned long long flags)
REFUSE_PTSZ(cuMemMapArrayAsync, CUarrayMapInfo *list, unsigned int count, CUstream stream)
REFUSE_PTSZ(cuMemBatchDecompressAsync, CUmemDecompressParams *list, size_t count, unsigned int flags, size_t *failed,
            CUstream stream)
REFUSE(cuImportExternalMemory, CUexternalMemory *memory, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *what)

/* graphs: nodes with a union of parameters, memory of a graph's own, conditions */
REFUSE(cuGraphAddNode, CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
       CUgraphNodeParams *params)
REFUSE(cuGraphAddNode_v2, CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, const CUgraphEdgeData *edges,
       size_t count, CUgraphNodeParams *params)
REFUSE(cuGraphAddMemAllocNode, CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
       CUDA_MEM_ALLOC_NODE_PARAMS *params)
REFUSE(cuGraphAddMemFreeNode, CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
       CUdeviceptr address)
REFUSE(cuGraphConditionalHandleCreate, CUgraphConditionalHandle *handle, CUgraph graph, CUcontext context,
       unsigned int value, unsigned int flags)

/* what a null kernel cannot need: the linker, tensor maps, clusters, launches on several devices */
REFUSE(cuLinkCreate_v2, unsigned int count, CUjit_option *options, void **values, CUlinkState *state)
REFUSE(cuLinkAddData_v2, CUlinkState state, CUjitInputType type, void *data, size_t bytes, const char *name,
       unsigned int count, CUjit_option *options, void **values)
REFUSE(cuLinkComplete, CUlinkState state, void **cubin, size_t *bytes)
REFUSE(cuLinkDestroy, CUlinkState state)
REFUSE(cuTensorMapEncodeTiled, CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address,
       const cuuint64_t *sizes, const cuuint64_t *strides, const cuuint32_t *box, const cuuint32_t *element_strides,
       CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
       CUtensorMapFloatOOBfill fill)
REFUSE(cuOccupancyMaxActiveClusters, int *clusters, CUfunction function, const CUlaunchConfig *config)
REFUSE(cuLaunchCooperativeKernelMultiDevice, CUDA_LAUNCH_PARAMS *list, unsigned int count, unsigned int flags)

/* multicast, green contexts: the device's attributes offer neither */
REFUSE(cuMulticastCreate, CUmemGenericAllocationHandle *handle, const CUmulticastObjectProp *prop)
REFUSE(cuMulticastAddDevice, CUmemGenericAllocationHandle handle, CUdevice device)
REFUSE(cuMulticastBindMem, CUmemGenericAllocationHandle handle, size_t offset, CUmemGenericAllocationHandle memory,
       size_t memory_offset, size_t bytes, unsigned long long flags)
REFUSE(cuMulticastUnbind, CUmemGenericAllocationHandle handle, CUdevice device, size_t offset, size_t bytes)
REFUSE(cuMulticastGetGranularity, size_t *bytes, const CUmulticastObjectProp *prop, CUmulticastGranularity_flags option)
REFUSE(cuGreenCtxCreate, CUgreenCtx *context, CUdevResourceDesc resources, CUdevice device, unsigned int flags)
REFUSE(cuGreenCtxDestroy, CUgreenCtx context)
REFUSE(cuGreenCtxStreamCreate, CUstream *stream, CUgreenCtx context, unsigned int flags, int priority)
REFUSE(cuCtxFromGreenCtx, CUcontext *context, CUgreenCtx green)
REFUSE(cuDeviceGetDevResource, CUdevice device, CUdevResource *resource, CUdevResourceType type)
REFUSE(cuDevSmResourceSplitByCount, CUdevResource *groups, unsigned int *count, const CUdevResource *input,
       CUdevResource *rest, unsigned int flags, unsigned int least)
REFUSE(cuDevResourceGenerateDesc, CUdevResourceDesc *description, CUdevResource *resources, unsigned int count)

/* Tables that are private to NVIDIA's runtime, which therefore does not run here. */
CUresult cuGetExportTable(const void **table, const CUuuid *id) {
  ENTER_EARLY(cuGetExportTable);
  (void)id;
  if (table) *table = NULL;
  return CUDA_ERROR_NOT_FOUND;
}
