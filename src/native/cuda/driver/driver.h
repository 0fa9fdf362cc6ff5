/* Folder cuda/driver/: our own declarations of the CUDA driver's types and calls.  Nothing enters but what the vendor's
 * header declares in the same way (tests/emulator/test_header.py compares them).
 * May include: nothing. */
/* Our own declarations of the CUDA driver calls that Carpool hooks or makes, by the names that libcuda.so.1 exports.
 *
 * A call that submits to a stream exists twice: plain (a null stream is the legacy default stream) and with the suffix
 * _ptsz or, for calls without a stream, _ptds (it is the calling thread's own).  The header is complete in that sense for
 * every call it names, so `typeof(cuLaunchKernel) *` and `typeof(cuLaunchKernel_ptsz) *` are the pointer types.
 * Older forms whose sizes are 32 bits wide (cuMemAlloc without _v2 and its like) are left out: no 64-bit program uses them. */
#ifndef CARPOOL_DRIVER_H
#define CARPOOL_DRIVER_H
#ifndef CARPOOL_DRIVER_TYPES_H /* tests put the real header in its place */
#include "cuda/driver/types.h"
#endif

#define CU_CALL(name, ...) CUresult name(__VA_ARGS__)
#define CU_PTSZ(name, ...) CUresult name(__VA_ARGS__); CUresult name##_ptsz(__VA_ARGS__)
#define CU_PTDS(name, ...) CUresult name(__VA_ARGS__); CUresult name##_ptds(__VA_ARGS__)
#pragma GCC visibility push(default)

/* driver and devices */
CU_CALL(cuInit, unsigned int flags);
CU_CALL(cuDriverGetVersion, int *version);
CU_CALL(cuGetErrorString, CUresult error, const char **text);
CU_CALL(cuGetErrorName, CUresult error, const char **text);
CU_CALL(cuGetProcAddress, const char *symbol, void **function, int version, cuuint64_t flags);
CU_CALL(cuGetProcAddress_v2, const char *symbol, void **function, int version, cuuint64_t flags,
        CUdriverProcAddressQueryResult *status);
CU_CALL(cuGetExportTable, const void **table, const CUuuid *id);
CU_CALL(cuDeviceGet, CUdevice *device, int ordinal);
CU_CALL(cuDeviceGetCount, int *count);
CU_CALL(cuDeviceGetName, char *name, int length, CUdevice device);
CU_CALL(cuDeviceGetUuid, CUuuid *uuid, CUdevice device);
CU_CALL(cuDeviceGetUuid_v2, CUuuid *uuid, CUdevice device);
CU_CALL(cuDeviceTotalMem_v2, size_t *bytes, CUdevice device);
CU_CALL(cuDeviceGetAttribute, int *value, CUdevice_attribute attribute, CUdevice device);
CU_CALL(cuDeviceGetPCIBusId, char *text, int length, CUdevice device);
CU_CALL(cuDeviceGetByPCIBusId, CUdevice *device, const char *text);
CU_CALL(cuDeviceCanAccessPeer, int *can, CUdevice device, CUdevice peer);
CU_CALL(cuDeviceGetP2PAttribute, int *value, CUdevice_P2PAttribute attribute, CUdevice from, CUdevice to);
CU_CALL(cuDeviceGetMemPool, CUmemoryPool *pool, CUdevice device);
CU_CALL(cuDeviceSetMemPool, CUdevice device, CUmemoryPool pool);
CU_CALL(cuDeviceGetDefaultMemPool, CUmemoryPool *pool, CUdevice device);
CU_CALL(cuDeviceGraphMemTrim, CUdevice device);
CU_CALL(cuDeviceGetGraphMemAttribute, CUdevice device, CUgraphMem_attribute attribute, void *value);
CU_CALL(cuDeviceSetGraphMemAttribute, CUdevice device, CUgraphMem_attribute attribute, void *value);

/* contexts */
CU_CALL(cuDevicePrimaryCtxRetain, CUcontext *context, CUdevice device);
CU_CALL(cuDevicePrimaryCtxRelease, CUdevice device);
CU_CALL(cuDevicePrimaryCtxRelease_v2, CUdevice device);
CU_CALL(cuDevicePrimaryCtxReset, CUdevice device);
CU_CALL(cuDevicePrimaryCtxReset_v2, CUdevice device);
CU_CALL(cuDevicePrimaryCtxSetFlags, CUdevice device, unsigned int flags);
CU_CALL(cuDevicePrimaryCtxSetFlags_v2, CUdevice device, unsigned int flags);
CU_CALL(cuDevicePrimaryCtxGetState, CUdevice device, unsigned int *flags, int *active);
CU_CALL(cuCtxCreate_v2, CUcontext *context, unsigned int flags, CUdevice device);
CU_CALL(cuCtxCreate_v3, CUcontext *context, CUexecAffinityParam *params, int count, unsigned int flags, CUdevice device);
CU_CALL(cuCtxCreate_v4, CUcontext *context, CUctxCreateParams *params, unsigned int flags, CUdevice device);
CU_CALL(cuGreenCtxCreate, CUgreenCtx *context, CUdevResourceDesc resources, CUdevice device, unsigned int flags);
CU_CALL(cuCtxAttach, CUcontext *context, unsigned int flags);
CU_CALL(cuCtxDetach, CUcontext context);
CU_CALL(cuCtxDestroy, CUcontext context);
CU_CALL(cuCtxDestroy_v2, CUcontext context);
CU_CALL(cuCtxPushCurrent, CUcontext context);
CU_CALL(cuCtxPushCurrent_v2, CUcontext context);
CU_CALL(cuCtxPopCurrent, CUcontext *context);
CU_CALL(cuCtxPopCurrent_v2, CUcontext *context);
CU_CALL(cuCtxSetCurrent, CUcontext context);
CU_CALL(cuCtxGetCurrent, CUcontext *context);
CU_CALL(cuCtxGetDevice, CUdevice *device);
CU_CALL(cuCtxGetDevice_v2, CUdevice *device, CUcontext context);
CU_CALL(cuCtxGetFlags, unsigned int *flags);
CU_CALL(cuCtxGetId, CUcontext context, unsigned long long *id);
CU_CALL(cuCtxSynchronize, void);
CU_CALL(cuCtxSynchronize_v2, CUcontext context);
CU_CALL(cuCtxSetLimit, CUlimit limit, size_t value);
CU_CALL(cuCtxGetLimit, size_t *value, CUlimit limit);
CU_CALL(cuCtxGetCacheConfig, CUfunc_cache *config);
CU_CALL(cuCtxSetCacheConfig, CUfunc_cache config);
CU_CALL(cuCtxGetApiVersion, CUcontext context, unsigned int *version);
CU_CALL(cuCtxGetStreamPriorityRange, int *least, int *greatest);
CU_CALL(cuCtxRecordEvent, CUcontext context, CUevent event);
CU_CALL(cuCtxWaitEvent, CUcontext context, CUevent event);
CU_CALL(cuCtxEnablePeerAccess, CUcontext peer, unsigned int flags);
CU_CALL(cuCtxDisablePeerAccess, CUcontext peer);

/* modules, functions, launches */
CU_CALL(cuModuleLoad, CUmodule *module, const char *path);
CU_CALL(cuModuleLoadData, CUmodule *module, const void *image);
CU_CALL(cuModuleLoadDataEx, CUmodule *module, const void *image, unsigned int count, CUjit_option *options, void **values);
CU_CALL(cuModuleLoadFatBinary, CUmodule *module, const void *image);
CU_CALL(cuModuleUnload, CUmodule module);
CU_CALL(cuModuleGetLoadingMode, CUmoduleLoadingMode *mode);
CU_CALL(cuModuleGetFunction, CUfunction *function, CUmodule module, const char *name);
CU_CALL(cuModuleGetGlobal_v2, CUdeviceptr *address, size_t *bytes, CUmodule module, const char *name);
CU_CALL(cuLibraryLoadData, CUlibrary *library, const void *code, CUjit_option *jit, void **jit_values, unsigned int jit_count,
        CUlibraryOption *options, void **values, unsigned int count);
CU_CALL(cuLibraryUnload, CUlibrary library);
CU_CALL(cuLibraryGetKernel, CUkernel *kernel, CUlibrary library, const char *name);
CU_CALL(cuLibraryGetModule, CUmodule *module, CUlibrary library);
CU_CALL(cuKernelGetFunction, CUfunction *function, CUkernel kernel);
CU_CALL(cuFuncGetAttribute, int *value, CUfunction_attribute attribute, CUfunction function);
CU_CALL(cuFuncSetAttribute, CUfunction function, CUfunction_attribute attribute, int value);
CU_CALL(cuFuncSetCacheConfig, CUfunction function, CUfunc_cache config);
CU_CALL(cuFuncGetModule, CUmodule *module, CUfunction function);
CU_CALL(cuFuncGetName, const char **name, CUfunction function);
CU_CALL(cuOccupancyMaxActiveBlocksPerMultiprocessor, int *blocks, CUfunction function, int block_size, size_t shared_bytes);
CU_PTSZ(cuLaunchKernel, CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
        unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared_bytes, CUstream stream,
        void **params, void **extra);
CU_PTSZ(cuLaunchKernelEx, const CUlaunchConfig *config, CUfunction function, void **params, void **extra);
CU_PTSZ(cuLaunchCooperativeKernel, CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,
        unsigned int block_x, unsigned int block_y, unsigned int block_z, unsigned int shared_bytes, CUstream stream,
        void **params);
CU_CALL(cuLaunchCooperativeKernelMultiDevice, CUDA_LAUNCH_PARAMS *list, unsigned int count, unsigned int flags);
CU_CALL(cuLaunch, CUfunction function);
CU_CALL(cuLaunchGrid, CUfunction function, int width, int height);
CU_CALL(cuLaunchGridAsync, CUfunction function, int width, int height, CUstream stream);
CU_PTSZ(cuLaunchHostFunc, CUstream stream, CUhostFn function, void *argument);

/* streams and events */
CU_CALL(cuStreamCreate, CUstream *stream, unsigned int flags);
CU_CALL(cuStreamCreateWithPriority, CUstream *stream, unsigned int flags, int priority);
CU_CALL(cuStreamDestroy, CUstream stream);
CU_CALL(cuStreamDestroy_v2, CUstream stream);
CU_PTSZ(cuStreamGetPriority, CUstream stream, int *priority);
CU_PTSZ(cuStreamGetFlags, CUstream stream, unsigned int *flags);
CU_PTSZ(cuStreamGetId, CUstream stream, unsigned long long *id);
CU_PTSZ(cuStreamGetDevice, CUstream stream, CUdevice *device);
CU_PTSZ(cuStreamGetCtx, CUstream stream, CUcontext *context);
CU_PTSZ(cuStreamGetCtx_v2, CUstream stream, CUcontext *context, CUgreenCtx *green);
CU_PTSZ(cuStreamWaitEvent, CUstream stream, CUevent event, unsigned int flags);
CU_PTSZ(cuStreamAddCallback, CUstream stream, CUstreamCallback callback, void *argument, unsigned int flags);
CU_PTSZ(cuStreamAttachMemAsync, CUstream stream, CUdeviceptr address, size_t length, unsigned int flags);
CU_PTSZ(cuStreamQuery, CUstream stream);
CU_PTSZ(cuStreamSynchronize, CUstream stream);
CU_PTSZ(cuStreamCopyAttributes, CUstream to, CUstream from);
CU_PTSZ(cuStreamGetAttribute, CUstream stream, CUstreamAttrID attribute, CUstreamAttrValue *value);
CU_PTSZ(cuStreamSetAttribute, CUstream stream, CUstreamAttrID attribute, const CUstreamAttrValue *value);
CU_PTSZ(cuStreamWaitValue32, CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned int flags);
CU_PTSZ(cuStreamWaitValue64, CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned int flags);
CU_PTSZ(cuStreamWriteValue32, CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned int flags);
CU_PTSZ(cuStreamWriteValue64, CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned int flags);
CU_PTSZ(cuStreamBatchMemOp, CUstream stream, unsigned int count, CUstreamBatchMemOpParams *params, unsigned int flags);
CU_PTSZ(cuStreamWaitValue32_v2, CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned int flags);
CU_PTSZ(cuStreamWaitValue64_v2, CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned int flags);
CU_PTSZ(cuStreamWriteValue32_v2, CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned int flags);
CU_PTSZ(cuStreamWriteValue64_v2, CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned int flags);
CU_PTSZ(cuStreamBatchMemOp_v2, CUstream stream, unsigned int count, CUstreamBatchMemOpParams *params, unsigned int flags);
CU_CALL(cuEventCreate, CUevent *event, unsigned int flags);
CU_CALL(cuEventDestroy, CUevent event);
CU_CALL(cuEventDestroy_v2, CUevent event);
CU_PTSZ(cuEventRecord, CUevent event, CUstream stream);
CU_PTSZ(cuEventRecordWithFlags, CUevent event, CUstream stream, unsigned int flags);
CU_CALL(cuEventQuery, CUevent event);
CU_CALL(cuEventSynchronize, CUevent event);
CU_CALL(cuEventElapsedTime, float *milliseconds, CUevent start, CUevent end);
CU_CALL(cuEventElapsedTime_v2, float *milliseconds, CUevent start, CUevent end);

#include "cuda/driver/graphs.h"
#include "cuda/driver/copies.h"
#include "cuda/driver/interop.h"
#include "cuda/driver/recent.h"
#include "cuda/driver/graphics.h"
#pragma GCC visibility pop
#endif
