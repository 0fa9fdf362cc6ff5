/* Capture, and graphs. */
#include "internal.h"

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode) {
  WITH_CONTEXT(cuStreamBeginCapture_v2(stream, (CUstreamCaptureMode)mode));
}
cudaError_t cudaStreamBeginCaptureToGraph(cudaStream_t stream, cudaGraph_t graph, const cudaGraphNode_t *dependencies,
                                          const cudaGraphEdgeData *edges, size_t count, enum cudaStreamCaptureMode mode) {
  WITH_CONTEXT(cuStreamBeginCaptureToGraph(stream, graph, dependencies, edges, count, (CUstreamCaptureMode)mode));
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) { WITH_CONTEXT(cuStreamEndCapture(stream, graph)); }
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status) {
  WITH_CONTEXT(cuStreamIsCapturing(stream, (CUstreamCaptureStatus *)status));
}
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, enum cudaStreamCaptureStatus *status, unsigned long long *id,
                                     cudaGraph_t *graph, const cudaGraphNode_t **dependencies,
                                     const cudaGraphEdgeData **edges, size_t *count) {
  WITH_CONTEXT(cuStreamGetCaptureInfo_v3(stream, (CUstreamCaptureStatus *)status, (cuuint64_t *)id, graph, dependencies, edges,
                                         count));
}
cudaError_t cudaStreamUpdateCaptureDependencies(cudaStream_t stream, cudaGraphNode_t *dependencies,
                                                const cudaGraphEdgeData *edges, size_t count, unsigned int flags) {
  WITH_CONTEXT(cuStreamUpdateCaptureDependencies_v2(stream, dependencies, edges, count, flags));
}
cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode) {
  WITH_DRIVER(cuThreadExchangeStreamCaptureMode((CUstreamCaptureMode *)mode));
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) { WITH_DRIVER(cuGraphDestroy(graph)); }
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count) {
  WITH_DRIVER(cuGraphGetNodes(graph, nodes, count));
}
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags) {
  WITH_CONTEXT(cuGraphInstantiateWithFlags(exec, graph, flags));
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) { WITH_DRIVER(cuGraphExecDestroy(exec)); }
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) { WITH_CONTEXT(cuGraphLaunch(exec, stream)); }
