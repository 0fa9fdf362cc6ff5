/* Part of driver.h: calls of drivers that are newer than the rest of it, from CUDA 13.1 to 13.5.  A vendor's header of before
 * 13.5 lacks some of them, and takes this file's place as it is. */
#ifndef CARPOOL_DRIVER_RECENT_H
#define CARPOOL_DRIVER_RECENT_H
#if !defined CUDA_VERSION || CUDA_VERSION >= 13050

#ifndef CUDA_VERSION
typedef cuuint32_t CUlogicalEndpointId;
typedef struct CUlogicalEndpointProp_struct CUlogicalEndpointProp;
typedef enum CUlogicalEndpointIpcHandleType_enum { CU_LOGICAL_ENDPOINT_IPC_HANDLE_TYPE_OTHER } CUlogicalEndpointIpcHandleType;
typedef struct CUDA_FABRIC_COPY_BATCH_OP_st CUDA_FABRIC_COPY_BATCH_OP;
typedef struct CUstreamCigCaptureParams_st CUstreamCigCaptureParams;
typedef void (*CUgraphRecaptureCallback)(void);
#endif

/* copies, host functions */
CU_PTSZ(cuMemcpyWithAttributesAsync, CUdeviceptr to, CUdeviceptr from, size_t bytes, CUmemcpyAttributes *attributes,
        CUstream stream);
CU_PTSZ(cuMemcpy3DWithAttributesAsync, CUDA_MEMCPY3D_BATCH_OP *copy, unsigned long long flags, CUstream stream);
CU_PTSZ(cuFabricCpyBatchAsync, size_t count, CUDA_FABRIC_COPY_BATCH_OP *list, unsigned long long flags, CUstream stream);
CU_PTSZ(cuLaunchHostFunc_v2, CUstream stream, CUhostFn function, void *argument, unsigned int mode);

/* capture, graphs */
CU_PTSZ(cuStreamBeginRecaptureToGraph, CUstream stream, CUstreamCaptureMode mode, CUgraph graph,
        CUgraphRecaptureCallback changed, void *data);
CU_PTSZ(cuStreamBeginCaptureToCig, CUstream stream, CUstreamCigCaptureParams *params);
CU_CALL(cuGraphAddNode_v3, CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, const CUgraphEdgeData *edges,
        size_t count, CUgraphNodeParams *params);

/* memory that other devices reach */
CU_CALL(cuMulticastBindMem_v2, CUmemGenericAllocationHandle handle, CUdevice device, size_t offset,
        CUmemGenericAllocationHandle memory, size_t memory_offset, size_t bytes, unsigned long long flags);
CU_CALL(cuMulticastBindAddr_v2, CUmemGenericAllocationHandle handle, CUdevice device, size_t offset, CUdeviceptr address,
        size_t bytes, unsigned long long flags);
CU_CALL(cuLogicalEndpointCreate, CUlogicalEndpointId endpoint, const CUlogicalEndpointProp *prop);
CU_CALL(cuLogicalEndpointImport, CUlogicalEndpointId endpoint, const void *handle, CUlogicalEndpointIpcHandleType type);
#endif
#endif
