/* Part of driver.h: capture, graphs, and the checkpoint of whole processes. */
#ifndef CARPOOL_DRIVER_GRAPHS_H
#define CARPOOL_DRIVER_GRAPHS_H

/* capture */
CU_PTSZ(cuStreamBeginCapture, CUstream stream);
CU_PTSZ(cuStreamBeginCapture_v2, CUstream stream, CUstreamCaptureMode mode);
CU_PTSZ(cuStreamBeginCaptureToGraph, CUstream stream, CUgraph graph, const CUgraphNode *dependencies,
        const CUgraphEdgeData *edges, size_t count, CUstreamCaptureMode mode);
CU_PTSZ(cuStreamEndCapture, CUstream stream, CUgraph *graph);
CU_PTSZ(cuStreamIsCapturing, CUstream stream, CUstreamCaptureStatus *status);
CU_PTSZ(cuStreamGetCaptureInfo, CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id);
CU_PTSZ(cuStreamGetCaptureInfo_v2, CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
        const CUgraphNode **dependencies, size_t *count);
CU_PTSZ(cuStreamGetCaptureInfo_v3, CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
        const CUgraphNode **dependencies, const CUgraphEdgeData **edges, size_t *count);
CU_PTSZ(cuStreamUpdateCaptureDependencies, CUstream stream, CUgraphNode *dependencies, size_t count, unsigned int flags);
CU_PTSZ(cuStreamUpdateCaptureDependencies_v2, CUstream stream, CUgraphNode *dependencies, const CUgraphEdgeData *edges,
        size_t count, unsigned int flags);
CU_CALL(cuThreadExchangeStreamCaptureMode, CUstreamCaptureMode *mode);

/* graphs */
CU_CALL(cuGraphCreate, CUgraph *graph, unsigned int flags);
CU_CALL(cuGraphDestroy, CUgraph graph);
CU_CALL(cuGraphClone, CUgraph *clone, CUgraph graph);
CU_CALL(cuGraphGetNodes, CUgraph graph, CUgraphNode *nodes, size_t *count);
CU_CALL(cuGraphNodeGetType, CUgraphNode node, CUgraphNodeType *type);
CU_CALL(cuGraphAddEmptyNode, CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count);
CU_CALL(cuGraphAddKernelNode_v2, CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
        const CUDA_KERNEL_NODE_PARAMS *params);
CU_CALL(cuGraphAddMemcpyNode, CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
        const CUDA_MEMCPY3D *params, CUcontext context);
CU_CALL(cuGraphAddMemsetNode, CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
        const CUDA_MEMSET_NODE_PARAMS *params, CUcontext context);
CU_CALL(cuGraphAddHostNode, CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
        const CUDA_HOST_NODE_PARAMS *params);
CU_CALL(cuGraphAddMemAllocNode, CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
        CUDA_MEM_ALLOC_NODE_PARAMS *params);
CU_CALL(cuGraphAddMemFreeNode, CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
        CUdeviceptr address);
CU_CALL(cuGraphAddNode, CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
        CUgraphNodeParams *params);
CU_CALL(cuGraphAddNode_v2, CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, const CUgraphEdgeData *edges,
        size_t count, CUgraphNodeParams *params);
CU_CALL(cuGraphInstantiate, CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node, char *log, size_t bytes);
CU_CALL(cuGraphInstantiate_v2, CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node, char *log, size_t bytes);
CU_CALL(cuGraphInstantiateWithFlags, CUgraphExec *exec, CUgraph graph, unsigned long long flags);
CU_PTSZ(cuGraphInstantiateWithParams, CUgraphExec *exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params);
CU_CALL(cuGraphExecUpdate, CUgraphExec exec, CUgraph graph, CUgraphNode *error_node, CUgraphExecUpdateResult *result);
CU_CALL(cuGraphExecUpdate_v2, CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *result);
CU_CALL(cuGraphExecDestroy, CUgraphExec exec);
CU_PTSZ(cuGraphUpload, CUgraphExec exec, CUstream stream);
CU_PTSZ(cuGraphLaunch, CUgraphExec exec, CUstream stream);

/* checkpoint (drivers of 570 and later) */
CU_CALL(cuCheckpointProcessGetRestoreThreadId, int pid, int *thread);
CU_CALL(cuCheckpointProcessGetState, int pid, CUprocessState *state);
CU_CALL(cuCheckpointProcessLock, int pid, CUcheckpointLockArgs *args);
CU_CALL(cuCheckpointProcessCheckpoint, int pid, CUcheckpointCheckpointArgs *args);
CU_CALL(cuCheckpointProcessRestore, int pid, CUcheckpointRestoreArgs *args);
CU_CALL(cuCheckpointProcessUnlock, int pid, CUcheckpointUnlockArgs *args);
#endif
