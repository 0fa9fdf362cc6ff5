/* Capture, and graphs.  Nodes with parameters of their own and conditions are refused, and counted, by the driver. */
#include "driver/extra.h"
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
cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode) {
  WITH_DRIVER(cuThreadExchangeStreamCaptureMode((CUstreamCaptureMode *)mode));
}

cudaError_t cudaUserObjectCreate(cudaUserObject_t *object, void *pointer, cudaHostFn_t destroy, unsigned int references,
                                 unsigned int flags) {
  WITH_DRIVER(cuUserObjectCreate(object, pointer, destroy, references, flags));
}
cudaError_t cudaUserObjectRelease(cudaUserObject_t object, unsigned int references) {
  WITH_DRIVER(cuUserObjectRelease(object, references));
}
cudaError_t cudaGraphRetainUserObject(cudaGraph_t graph, cudaUserObject_t object, unsigned int references,
                                      unsigned int flags) {
  WITH_DRIVER(cuGraphRetainUserObject(graph, object, references, flags));
}
cudaError_t cudaDeviceGetGraphMemAttribute(int device, enum cudaGraphMemAttributeType attribute, void *value) {
  WITH_DRIVER(cuDeviceGetGraphMemAttribute(device, (CUgraphMem_attribute)attribute, value));
}
cudaError_t cudaDeviceSetGraphMemAttribute(int device, enum cudaGraphMemAttributeType attribute, void *value) {
  WITH_DRIVER(cuDeviceSetGraphMemAttribute(device, (CUgraphMem_attribute)attribute, value));
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) { WITH_DRIVER(cuGraphDestroy(graph)); }
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count) {
  WITH_DRIVER(cuGraphGetNodes(graph, nodes, count));
}
cudaError_t cudaGraphDebugDotPrint(cudaGraph_t graph, const char *path, unsigned int flags) {
  WITH_DRIVER(cuGraphDebugDotPrint(graph, path, flags));
}
static int conditional(cudaGraphConditionalHandle *handle, CUgraph graph, unsigned int value, unsigned int flags) {
  CUcontext context;
  CUresult result = cuCtxGetCurrent(&context);
  return result ? result : cuGraphConditionalHandleCreate((CUgraphConditionalHandle *)handle, graph, context, value, flags);
}
cudaError_t cudaGraphConditionalHandleCreate(cudaGraphConditionalHandle *handle, cudaGraph_t graph, unsigned int value,
                                             unsigned int flags) {
  WITH_CONTEXT(conditional(handle, graph, value, flags));
}
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags) {
  WITH_CONTEXT(cuGraphInstantiateWithFlags(exec, graph, flags));
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) { WITH_DRIVER(cuGraphExecDestroy(exec)); }
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) { WITH_CONTEXT(cuGraphLaunch(exec, stream)); }
