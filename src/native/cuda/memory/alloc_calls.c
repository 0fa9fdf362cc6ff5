/* Entry points that get and free device memory, ask how much there is, or give others access to it. */
#include "cuda/memory/grant.h"
#include "cuda/memory/driver_memory.h"
#include "cuda/memory/handles.h"

#define CALLER __builtin_return_address(0)

static bool segment(CUdeviceptr address) { return cp_segments_serve() && cp_segments_hold(address); }

static CUresult freed(CUresult (*real)(CUdeviceptr), CUdeviceptr address) {
  if (segment(address)) return cp_segment_free(address);
  struct cp_piece p = cp_memory_goes(CP_ADDRESS, address);
  return cp_memory_gone(real(address), p);
}

static CUresult array_gone(CUresult (*real)(void *), void *array) {
  struct cp_piece p = cp_memory_goes(CP_ARRAY, (uintptr_t)array);
  return cp_memory_gone(real(array), p);
}

/* ---- at once ----------------------------------------------------------------------------------------------------------- */

CP_GATE(cuMemAlloc_v2, CUdeviceptr *address, size_t bytes) {
  cp_driver_start();
  if (CP_UNLIKELY(cp_load(&cp_shut) & CP_ASK)) cp_cuda_claim(); /* before it is decided whose memory this is */
  if (cp_segments_serve()) return cp_segment_alloc(address, bytes, cp_from_allocator(CALLER));
  return CP_SHARE(bytes, cp_memory_came(cp_real.cuMemAlloc_v2(address, bytes), CP_ADDRESS, address, bytes, CALLER));
}

CP_GATE(cuMemAllocPitch_v2, CUdeviceptr *address, size_t *pitch, size_t width, size_t height, unsigned int element) {
  cp_driver_start();
  uint64_t least = width * height; /* how much it is beyond that is not known before */
  if (!cp_share_claim(least)) return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult r = cp_real.cuMemAllocPitch_v2(address, pitch, width, height, element);
  return cp_memory_came(r, CP_ADDRESS, address, r != CUDA_SUCCESS ? 0 : pitch ? *pitch * height : least, CALLER);
}

CP_GATE(cuMemAllocManaged, CUdeviceptr *address, size_t bytes, unsigned int flags) {
  cp_driver_start();
  return CP_SHARE(bytes, cp_memory_came(cp_real.cuMemAllocManaged(address, bytes, flags), CP_ADDRESS, address, bytes, CALLER));
}

CP_GATE(cuMemFree_v2, CUdeviceptr address) {
  cp_driver_start();
  return freed(cp_real.cuMemFree_v2, address);
}

/* ---- in stream order: work, too ---------------------------------------------------------------------------------------- */

#define ORDERED(symbol, own, call, ...) \
  CP_GATE(symbol, __VA_ARGS__) { \
    uint64_t leave = 0; \
    struct cp_thread *t = cp_enter(&leave); \
    cp_note_stream(t, stream, own); \
    CUresult r = call; \
    cp_leave(t, leave); \
    return r; \
  }
#define CAME(expression) CP_SHARE(bytes, cp_memory_came(expression, CP_ADDRESS, address, bytes, CALLER))
ORDERED(cuMemAllocAsync, 0, CAME(cp_real.cuMemAllocAsync(address, bytes, stream)), CUdeviceptr *address, size_t bytes,
        CUstream stream)
ORDERED(cuMemAllocAsync_ptsz, 1, CAME(cp_real.cuMemAllocAsync_ptsz(address, bytes, stream)), CUdeviceptr *address,
        size_t bytes, CUstream stream)
ORDERED(cuMemAllocFromPoolAsync, 0, CAME(cp_real.cuMemAllocFromPoolAsync(address, bytes, pool, stream)),
        CUdeviceptr *address, size_t bytes, CUmemoryPool pool, CUstream stream)
ORDERED(cuMemAllocFromPoolAsync_ptsz, 1, CAME(cp_real.cuMemAllocFromPoolAsync_ptsz(address, bytes, pool, stream)),
        CUdeviceptr *address, size_t bytes, CUmemoryPool pool, CUstream stream)

static CUresult freed_in_order(CUresult (*real)(CUdeviceptr, CUstream), CUdeviceptr address, CUstream stream) {
  if (segment(address)) return cp_segment_free(address); /* waits for more than it would have to */
  struct cp_piece p = cp_memory_goes(CP_ADDRESS, address);
  return cp_memory_gone(real(address, stream), p);
}
ORDERED(cuMemFreeAsync, 0, freed_in_order(cp_real.cuMemFreeAsync, address, stream), CUdeviceptr address, CUstream stream)
ORDERED(cuMemFreeAsync_ptsz, 1, freed_in_order(cp_real.cuMemFreeAsync_ptsz, address, stream), CUdeviceptr address,
        CUstream stream)

/* ---- arrays ------------------------------------------------------------------------------------------------------------ */

static uint64_t array_bytes(uint64_t width, uint64_t height, uint64_t depth, unsigned int format, uint64_t channels) {
  uint64_t element = format == CU_AD_FORMAT_UNSIGNED_INT8 || format == CU_AD_FORMAT_SIGNED_INT8 ? 1
                     : format == CU_AD_FORMAT_UNSIGNED_INT16 || format == CU_AD_FORMAT_SIGNED_INT16 ||
                             format == CU_AD_FORMAT_HALF
                         ? 2
                         : 4;
  return width * (height ? height : 1) * (depth ? depth : 1) * element * channels;
}

CP_GATE(cuArrayCreate_v2, CUarray *array, const CUDA_ARRAY_DESCRIPTOR *d) {
  cp_driver_start();
  uint64_t bytes = d ? array_bytes(d->Width, d->Height, 0, d->Format, d->NumChannels) : 0;
  return CP_SHARE(bytes, cp_memory_came(cp_real.cuArrayCreate_v2(array, d), CP_ARRAY, array, bytes, CALLER));
}

CP_GATE(cuArray3DCreate_v2, CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *d) {
  cp_driver_start();
  uint64_t bytes = d ? array_bytes(d->Width, d->Height, d->Depth, d->Format, d->NumChannels) : 0;
  return CP_SHARE(bytes, cp_memory_came(cp_real.cuArray3DCreate_v2(array, d), CP_ARRAY, array, bytes, CALLER));
}

CP_GATE(cuArrayDestroy, CUarray array) {
  cp_driver_start();
  return array_gone((CUresult(*)(void *))(void *)cp_real.cuArrayDestroy, array);
}

CP_GATE(cuMipmappedArrayCreate, CUmipmappedArray *array, const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned int levels) {
  cp_driver_start();
  uint64_t bytes = 0;
  for (unsigned int i = 0; d && i < levels && i < 32; i++)
    bytes += array_bytes((d->Width >> i) + !(d->Width >> i), d->Height >> i, d->Depth >> i, d->Format, d->NumChannels);
  return CP_SHARE(bytes, cp_memory_came(cp_real.cuMipmappedArrayCreate(array, d, levels), CP_ARRAY, array, bytes, CALLER));
}

CP_GATE(cuMipmappedArrayDestroy, CUmipmappedArray array) {
  cp_driver_start();
  return array_gone((CUresult(*)(void *))(void *)cp_real.cuMipmappedArrayDestroy, array);
}

/* ---- memory of graphs: the driver has it from a launch on, and keeps it afterwards ---------------------------------- */

static CUresult graph_allocates(CUresult r, bool allocates) {
  if (r == CUDA_SUCCESS && allocates) cp_traits(CP_TRAIT_FIXED);
  return r;
}
#define NODE(symbol, allocates, arguments, ...) \
  CP_GATE(symbol, __VA_ARGS__) { \
    cp_driver_start(); \
    return graph_allocates(cp_real.symbol arguments, allocates); \
  }
#define ALLOCATES (params && params->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
NODE(cuGraphAddMemAllocNode, true, (node, graph, dependencies, count, params), CUgraphNode *node, CUgraph graph,
     const CUgraphNode *dependencies, size_t count, CUDA_MEM_ALLOC_NODE_PARAMS *params)
NODE(cuGraphAddNode, ALLOCATES, (node, graph, dependencies, count, params), CUgraphNode *node, CUgraph graph,
     const CUgraphNode *dependencies, size_t count, CUgraphNodeParams *params)
NODE(cuGraphAddNode_v2, ALLOCATES, (node, graph, dependencies, edges, count, params), CUgraphNode *node, CUgraph graph,
     const CUgraphNode *dependencies, const CUgraphEdgeData *edges, size_t count, CUgraphNodeParams *params)
NODE(cuGraphAddNode_v3, ALLOCATES, (node, graph, dependencies, edges, count, params), CUgraphNode *node, CUgraph graph,
     const CUgraphNode *dependencies, const CUgraphEdgeData *edges, size_t count, CUgraphNodeParams *params)

/* ---- what the job sees, and what others see ------------------------------------------------------------------------- */

/* The device as the job would see it alone: others' memory is the daemon's business.  A job with several devices is alone
 * on each of them, and what it has is not told apart by device here: the driver does that.  Either pointer may be NULL. */
CP_GATE(cuMemGetInfo_v2, size_t *free_bytes, size_t *total) {
  cp_driver_start();
  if (CP_UNLIKELY(cp_load(&cp_shut) & CP_ASK)) cp_cuda_claim(); /* engines size themselves before they allocate */
  size_t own, *bytes = total || !free_bytes ? total : &own;
  CUresult r = cp_real.cuMemGetInfo_v2(free_bytes, bytes);
  if (r != CUDA_SUCCESS || !cp_active() || cp.backend != &cp_cuda_backend || cp_sees_several() || !bytes) return r;
  if (cp.capacity && cp.capacity < *bytes) *bytes = cp.capacity;
  uint64_t used = cp_memory_live() + (cp_segments_serve() ? cp_segments_live() : 0);
  if (free_bytes) *free_bytes = used < *bytes ? *bytes - used : 0;
  return r;
}

#define SHARED(symbol, call, ...) \
  CP_GATE(symbol, __VA_ARGS__) { \
    cp_driver_start(); \
    CUresult r = call; \
    if (r == CUDA_SUCCESS) cp_traits(CP_TRAIT_SHARED); \
    return r; \
  }
/* A segment is a piece of extents, of which the driver makes no such handle. */
static CUresult segment_handle(void) {
  static const char text[] = "carpool: warning: this job passes tensors on the GPU to other processes (CUDA IPC), which needs "
                             "a GPU of its own: submit it with --exclusive\n";
  static uint32_t warned;
  if (!cp_load(&warned)) syscall(SYS_write, STDERR_FILENO, text, sizeof text - 1);
  cp_store(&warned, 1);
  return CUDA_ERROR_NOT_SUPPORTED;
}
SHARED(cuIpcGetMemHandle, segment(address) ? segment_handle() : cp_real.cuIpcGetMemHandle(handle, address),
       CUipcMemHandle *handle, CUdeviceptr address)
SHARED(cuMemExportToShareableHandle,
       cp_real.cuMemExportToShareableHandle(shareable, cp_handle_pinned(handle), type, flags), void *shareable,
       CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type, unsigned long long flags)
SHARED(cuMemPoolExportToShareableHandle, cp_real.cuMemPoolExportToShareableHandle(shareable, pool, type, flags),
       void *shareable, CUmemoryPool pool, CUmemAllocationHandleType type, unsigned long long flags)
SHARED(cuMemPoolExportPointer, cp_real.cuMemPoolExportPointer(data, address), CUmemPoolPtrExportData *data,
       CUdeviceptr address)
SHARED(cuMemGetHandleForAddressRange,
       cp_real.cuMemGetHandleForAddressRange(handle, cp_mappings_pinned(address, bytes), bytes, type, flags),
       void *handle, CUdeviceptr address, size_t bytes, CUmemRangeHandleType type, unsigned long long flags)
