/* Calls of the driver that PyTorch and the CUDA runtime make, and that Carpool neither hooks nor makes: those of the latter
 * kind are in cuda/driver/driver.h.  tests/emulator/test_header.py compares both with the vendor's header. */
#ifndef CARPOOL_STUB_EXTRA_H
#define CARPOOL_STUB_EXTRA_H
#include "cuda/driver/driver.h"
#ifndef CARPOOL_STUB_EXTRA_TYPES_H /* tests put the real header in its place */
#include "extra_types.h"
#endif
#pragma GCC visibility push(default)

/* kernels of libraries, occupancy */
CU_CALL(cuLibraryGetGlobal, CUdeviceptr *address, size_t *bytes, CUlibrary library, const char *name);
CU_CALL(cuKernelGetAttribute, int *value, CUfunction_attribute attribute, CUkernel kernel, CUdevice device);
CU_CALL(cuKernelSetAttribute, CUfunction_attribute attribute, int value, CUkernel kernel, CUdevice device);
CU_CALL(cuKernelSetCacheConfig, CUkernel kernel, CUfunc_cache config, CUdevice device);
CU_CALL(cuKernelGetName, const char **name, CUkernel kernel);
CU_CALL(cuKernelGetLibrary, CUlibrary *library, CUkernel kernel);
CU_CALL(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, int *blocks, CUfunction function, int block_size,
        size_t shared_bytes, unsigned int flags);
CU_CALL(cuOccupancyMaxPotentialBlockSize, int *grid_size, int *block_size, CUfunction function,
        CUoccupancyB2DSize shared_bytes_of, size_t shared_bytes, int limit);
CU_CALL(cuOccupancyMaxPotentialBlockSizeWithFlags, int *grid_size, int *block_size, CUfunction function,
        CUoccupancyB2DSize shared_bytes_of, size_t shared_bytes, int limit, unsigned int flags);
CU_CALL(cuOccupancyAvailableDynamicSMemPerBlock, size_t *bytes, CUfunction function, int blocks, int block_size);
CU_CALL(cuOccupancyMaxActiveClusters, int *clusters, CUfunction function, const CUlaunchConfig *config);

/* graphs */
CU_CALL(cuGraphNodeGetDependencies, CUgraphNode node, CUgraphNode *dependencies, size_t *count);
CU_CALL(cuGraphNodeGetDependencies_v2, CUgraphNode node, CUgraphNode *dependencies, CUgraphEdgeData *edges, size_t *count);
CU_CALL(cuGraphDebugDotPrint, CUgraph graph, const char *path, unsigned int flags);
CU_CALL(cuGraphConditionalHandleCreate, CUgraphConditionalHandle *handle, CUgraph graph, CUcontext context,
        unsigned int value, unsigned int flags);
CU_CALL(cuUserObjectCreate, CUuserObject *object, void *pointer, CUhostFn destroy, unsigned int references,
        unsigned int flags);
CU_CALL(cuUserObjectRelease, CUuserObject object, unsigned int references);
CU_CALL(cuGraphRetainUserObject, CUgraph graph, CUuserObject object, unsigned int references, unsigned int flags);

/* the linker, tensor maps */
CU_CALL(cuLinkCreate_v2, unsigned int count, CUjit_option *options, void **values, CUlinkState *state);
CU_CALL(cuLinkAddData_v2, CUlinkState state, CUjitInputType type, void *data, size_t bytes, const char *name,
        unsigned int count, CUjit_option *options, void **values);
CU_CALL(cuLinkComplete, CUlinkState state, void **cubin, size_t *bytes);
CU_CALL(cuLinkDestroy, CUlinkState state);
CU_CALL(cuTensorMapEncodeTiled, CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *address,
        const cuuint64_t *sizes, const cuuint64_t *strides, const cuuint32_t *box, const cuuint32_t *element_strides,
        CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
        CUtensorMapFloatOOBfill fill);

/* multicast, green contexts */
CU_CALL(cuMulticastUnbind, CUmemGenericAllocationHandle handle, CUdevice device, size_t offset, size_t bytes);
CU_CALL(cuMulticastGetGranularity, size_t *bytes, const CUmulticastObjectProp *prop, CUmulticastGranularity_flags option);
CU_CALL(cuGreenCtxDestroy, CUgreenCtx context);
CU_CALL(cuGreenCtxStreamCreate, CUstream *stream, CUgreenCtx context, unsigned int flags, int priority);
CU_CALL(cuCtxFromGreenCtx, CUcontext *context, CUgreenCtx green);
CU_CALL(cuDeviceGetDevResource, CUdevice device, CUdevResource *resource, CUdevResourceType type);
CU_CALL(cuDevSmResourceSplitByCount, CUdevResource *groups, unsigned int *count, const CUdevResource *input,
        CUdevResource *rest, unsigned int flags, unsigned int least);
CU_CALL(cuDevResourceGenerateDesc, CUdevResourceDesc *description, CUdevResource *resources, unsigned int count);

#pragma GCC visibility pop
#endif
