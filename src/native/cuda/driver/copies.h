/* Part of driver.h: memory of every kind, copies and fills. */
#ifndef CARPOOL_DRIVER_COPIES_H
#define CARPOOL_DRIVER_COPIES_H

/* device memory */
CU_CALL(cuMemGetInfo_v2, size_t *free_bytes, size_t *total);
CU_CALL(cuMemAlloc_v2, CUdeviceptr *address, size_t bytes);
CU_CALL(cuMemAllocPitch_v2, CUdeviceptr *address, size_t *pitch, size_t width, size_t height, unsigned int element);
CU_CALL(cuMemAllocManaged, CUdeviceptr *address, size_t bytes, unsigned int flags);
CU_CALL(cuMemFree_v2, CUdeviceptr address);
CU_CALL(cuMemGetAddressRange_v2, CUdeviceptr *base, size_t *bytes, CUdeviceptr address);
CU_CALL(cuPointerGetAttribute, void *data, CUpointer_attribute attribute, CUdeviceptr address);
CU_CALL(cuPointerGetAttributes, unsigned int count, CUpointer_attribute *attributes, void **data, CUdeviceptr address);
CU_CALL(cuPointerSetAttribute, const void *value, CUpointer_attribute attribute, CUdeviceptr address);
CU_CALL(cuArrayCreate_v2, CUarray *array, const CUDA_ARRAY_DESCRIPTOR *descriptor);
CU_CALL(cuArrayGetDescriptor_v2, CUDA_ARRAY_DESCRIPTOR *descriptor, CUarray array);
CU_CALL(cuArray3DCreate_v2, CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *descriptor);
CU_CALL(cuArray3DGetDescriptor_v2, CUDA_ARRAY3D_DESCRIPTOR *descriptor, CUarray array);
CU_CALL(cuArrayDestroy, CUarray array);
CU_CALL(cuMipmappedArrayCreate, CUmipmappedArray *array, const CUDA_ARRAY3D_DESCRIPTOR *descriptor, unsigned int levels);
CU_CALL(cuMipmappedArrayGetLevel, CUarray *level_array, CUmipmappedArray array, unsigned int level);
CU_CALL(cuMipmappedArrayDestroy, CUmipmappedArray array);

/* virtual memory management */
CU_CALL(cuMemAddressReserve, CUdeviceptr *address, size_t bytes, size_t alignment, CUdeviceptr hint, unsigned long long flags);
CU_CALL(cuMemAddressFree, CUdeviceptr address, size_t bytes);
CU_CALL(cuMemCreate, CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *prop,
        unsigned long long flags);
CU_CALL(cuMemRelease, CUmemGenericAllocationHandle handle);
CU_CALL(cuMemMap, CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
        unsigned long long flags);
CU_PTSZ(cuMemMapArrayAsync, CUarrayMapInfo *list, unsigned int count, CUstream stream);
CU_CALL(cuMemUnmap, CUdeviceptr address, size_t bytes);
CU_CALL(cuMemSetAccess, CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access, size_t count);
CU_CALL(cuMemGetAccess, unsigned long long *flags, const CUmemLocation *location, CUdeviceptr address);
CU_CALL(cuMemExportToShareableHandle, void *shareable, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type,
        unsigned long long flags);
CU_CALL(cuMemImportFromShareableHandle, CUmemGenericAllocationHandle *handle, void *shareable,
        CUmemAllocationHandleType type);
CU_CALL(cuMemGetAllocationGranularity, size_t *bytes, const CUmemAllocationProp *prop, CUmemAllocationGranularity_flags option);
CU_CALL(cuMemGetAllocationPropertiesFromHandle, CUmemAllocationProp *prop, CUmemGenericAllocationHandle handle);
CU_CALL(cuMemRetainAllocationHandle, CUmemGenericAllocationHandle *handle, void *address);
CU_CALL(cuMemGetHandleForAddressRange, void *handle, CUdeviceptr address, size_t bytes, CUmemRangeHandleType type,
        unsigned long long flags);

/* memory in stream order, and pools */
CU_PTSZ(cuMemAllocAsync, CUdeviceptr *address, size_t bytes, CUstream stream);
CU_PTSZ(cuMemAllocFromPoolAsync, CUdeviceptr *address, size_t bytes, CUmemoryPool pool, CUstream stream);
CU_PTSZ(cuMemFreeAsync, CUdeviceptr address, CUstream stream);
CU_CALL(cuMemPoolCreate, CUmemoryPool *pool, const CUmemPoolProps *props);
CU_CALL(cuMemPoolDestroy, CUmemoryPool pool);
CU_CALL(cuMemPoolTrimTo, CUmemoryPool pool, size_t keep);
CU_CALL(cuMemPoolSetAttribute, CUmemoryPool pool, CUmemPool_attribute attribute, void *value);
CU_CALL(cuMemPoolGetAttribute, CUmemoryPool pool, CUmemPool_attribute attribute, void *value);
CU_CALL(cuMemPoolSetAccess, CUmemoryPool pool, const CUmemAccessDesc *access, size_t count);
CU_CALL(cuMemPoolGetAccess, CUmemAccess_flags *flags, CUmemoryPool pool, CUmemLocation *location);
CU_CALL(cuMemPoolExportToShareableHandle, void *shareable, CUmemoryPool pool, CUmemAllocationHandleType type,
        unsigned long long flags);
CU_CALL(cuMemPoolImportFromShareableHandle, CUmemoryPool *pool, void *shareable, CUmemAllocationHandleType type,
        unsigned long long flags);
CU_CALL(cuMemPoolExportPointer, CUmemPoolPtrExportData *data, CUdeviceptr address);
CU_CALL(cuMemPoolImportPointer, CUdeviceptr *address, CUmemoryPool pool, CUmemPoolPtrExportData *data);

/* host memory, sharing between processes */
CU_CALL(cuMemAllocHost_v2, void **memory, size_t bytes);
CU_CALL(cuMemHostAlloc, void **memory, size_t bytes, unsigned int flags);
CU_CALL(cuMemFreeHost, void *memory);
CU_CALL(cuMemHostGetDevicePointer_v2, CUdeviceptr *address, void *memory, unsigned int flags);
CU_CALL(cuMemHostGetFlags, unsigned int *flags, void *memory);
CU_CALL(cuMemHostRegister, void *memory, size_t bytes, unsigned int flags);
CU_CALL(cuMemHostRegister_v2, void *memory, size_t bytes, unsigned int flags);
CU_CALL(cuMemHostUnregister, void *memory);
CU_CALL(cuIpcGetMemHandle, CUipcMemHandle *handle, CUdeviceptr address);
CU_CALL(cuIpcOpenMemHandle, CUdeviceptr *address, CUipcMemHandle handle, unsigned int flags);
CU_CALL(cuIpcOpenMemHandle_v2, CUdeviceptr *address, CUipcMemHandle handle, unsigned int flags);
CU_CALL(cuIpcCloseMemHandle, CUdeviceptr address);
CU_CALL(cuIpcGetEventHandle, CUipcEventHandle *handle, CUevent event);
CU_CALL(cuIpcOpenEventHandle, CUevent *event, CUipcEventHandle handle);

/* copies */
CU_PTDS(cuMemcpy, CUdeviceptr to, CUdeviceptr from, size_t bytes);
CU_PTDS(cuMemcpyHtoD_v2, CUdeviceptr to, const void *from, size_t bytes);
CU_PTDS(cuMemcpyDtoH_v2, void *to, CUdeviceptr from, size_t bytes);
CU_PTDS(cuMemcpyDtoD_v2, CUdeviceptr to, CUdeviceptr from, size_t bytes);
CU_PTDS(cuMemcpyDtoA_v2, CUarray to, size_t offset, CUdeviceptr from, size_t bytes);
CU_PTDS(cuMemcpyAtoD_v2, CUdeviceptr to, CUarray from, size_t offset, size_t bytes);
CU_PTDS(cuMemcpyHtoA_v2, CUarray to, size_t offset, const void *from, size_t bytes);
CU_PTDS(cuMemcpyAtoH_v2, void *to, CUarray from, size_t offset, size_t bytes);
CU_PTDS(cuMemcpyAtoA_v2, CUarray to, size_t to_offset, CUarray from, size_t from_offset, size_t bytes);
CU_PTDS(cuMemcpyPeer, CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes);
CU_PTDS(cuMemcpy2D_v2, const CUDA_MEMCPY2D *copy);
CU_PTDS(cuMemcpy2DUnaligned_v2, const CUDA_MEMCPY2D *copy);
CU_PTDS(cuMemcpy3D_v2, const CUDA_MEMCPY3D *copy);
CU_PTDS(cuMemcpy3DPeer, const CUDA_MEMCPY3D_PEER *copy);
CU_PTSZ(cuMemcpyAsync, CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream);
CU_PTSZ(cuMemcpyHtoDAsync_v2, CUdeviceptr to, const void *from, size_t bytes, CUstream stream);
CU_PTSZ(cuMemcpyDtoHAsync_v2, void *to, CUdeviceptr from, size_t bytes, CUstream stream);
CU_PTSZ(cuMemcpyDtoDAsync_v2, CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream);
CU_PTSZ(cuMemcpyHtoAAsync_v2, CUarray to, size_t offset, const void *from, size_t bytes, CUstream stream);
CU_PTSZ(cuMemcpyAtoHAsync_v2, void *to, CUarray from, size_t offset, size_t bytes, CUstream stream);
CU_PTSZ(cuMemcpyPeerAsync, CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, size_t bytes,
        CUstream stream);
CU_PTSZ(cuMemcpy2DAsync_v2, const CUDA_MEMCPY2D *copy, CUstream stream);
CU_PTSZ(cuMemcpy3DAsync_v2, const CUDA_MEMCPY3D *copy, CUstream stream);
CU_PTSZ(cuMemcpy3DPeerAsync, const CUDA_MEMCPY3D_PEER *copy, CUstream stream);
CU_PTSZ(cuMemcpyBatchAsync, CUdeviceptr *to, CUdeviceptr *from, size_t *bytes, size_t count, CUmemcpyAttributes *attributes,
        size_t *indices, size_t attribute_count, size_t *failed, CUstream stream);
CU_PTSZ(cuMemcpyBatchAsync_v2, CUdeviceptr *to, CUdeviceptr *from, size_t *bytes, size_t count,
        CUmemcpyAttributes *attributes, size_t *indices, size_t attribute_count, CUstream stream);
CU_PTSZ(cuMemcpy3DBatchAsync, size_t count, CUDA_MEMCPY3D_BATCH_OP *list, size_t *failed, unsigned long long flags,
        CUstream stream);
CU_PTSZ(cuMemcpy3DBatchAsync_v2, size_t count, CUDA_MEMCPY3D_BATCH_OP *list, unsigned long long flags, CUstream stream);

CU_PTSZ(cuMemBatchDecompressAsync, CUmemDecompressParams *list, size_t count, unsigned int flags, size_t *failed,
        CUstream stream);

/* fills */
CU_PTDS(cuMemsetD8_v2, CUdeviceptr to, unsigned char value, size_t count);
CU_PTDS(cuMemsetD16_v2, CUdeviceptr to, unsigned short value, size_t count);
CU_PTDS(cuMemsetD32_v2, CUdeviceptr to, unsigned int value, size_t count);
CU_PTDS(cuMemsetD2D8_v2, CUdeviceptr to, size_t pitch, unsigned char value, size_t width, size_t height);
CU_PTDS(cuMemsetD2D16_v2, CUdeviceptr to, size_t pitch, unsigned short value, size_t width, size_t height);
CU_PTDS(cuMemsetD2D32_v2, CUdeviceptr to, size_t pitch, unsigned int value, size_t width, size_t height);
CU_PTSZ(cuMemsetD8Async, CUdeviceptr to, unsigned char value, size_t count, CUstream stream);
CU_PTSZ(cuMemsetD16Async, CUdeviceptr to, unsigned short value, size_t count, CUstream stream);
CU_PTSZ(cuMemsetD32Async, CUdeviceptr to, unsigned int value, size_t count, CUstream stream);
CU_PTSZ(cuMemsetD2D8Async, CUdeviceptr to, size_t pitch, unsigned char value, size_t width, size_t height, CUstream stream);
CU_PTSZ(cuMemsetD2D16Async, CUdeviceptr to, size_t pitch, unsigned short value, size_t width, size_t height, CUstream stream);
CU_PTSZ(cuMemsetD2D32Async, CUdeviceptr to, size_t pitch, unsigned int value, size_t width, size_t height, CUstream stream);

/* managed memory */
CU_PTSZ(cuMemPrefetchAsync, CUdeviceptr address, size_t bytes, CUdevice device, CUstream stream);
CU_PTSZ(cuMemPrefetchAsync_v2, CUdeviceptr address, size_t bytes, CUmemLocation location, unsigned int flags, CUstream stream);
CU_PTSZ(cuMemPrefetchBatchAsync, CUdeviceptr *addresses, size_t *bytes, size_t count, CUmemLocation *locations,
        size_t *indices, size_t location_count, unsigned long long flags, CUstream stream);
CU_PTSZ(cuMemDiscardBatchAsync, CUdeviceptr *addresses, size_t *bytes, size_t count, unsigned long long flags,
        CUstream stream);
CU_PTSZ(cuMemDiscardAndPrefetchBatchAsync, CUdeviceptr *addresses, size_t *bytes, size_t count, CUmemLocation *locations,
        size_t *indices, size_t location_count, unsigned long long flags, CUstream stream);
CU_CALL(cuMemAdvise, CUdeviceptr address, size_t bytes, CUmem_advise advice, CUdevice device);
CU_CALL(cuMemAdvise_v2, CUdeviceptr address, size_t bytes, CUmem_advise advice, CUmemLocation location);
#endif
