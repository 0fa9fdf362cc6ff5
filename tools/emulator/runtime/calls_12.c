/* Calls that the runtime 12 has otherwise than 13, or 13 has not. */
#include "internal.h"
#if EMULATED_RUNTIME == 12

cudaError_t cudaGetDeviceProperties_v2(struct cudaDeviceProp *properties, int device) {
  WITH_DRIVER(runtime_properties(properties, device));
}
cudaError_t cudaStreamGetCaptureInfo_v2(cudaStream_t stream, enum cudaStreamCaptureStatus *status, unsigned long long *id,
                                        cudaGraph_t *graph, const cudaGraphNode_t **dependencies, size_t *count) {
  WITH_CONTEXT(cuStreamGetCaptureInfo_v2(stream, (CUstreamCaptureStatus *)status, (cuuint64_t *)id, graph, dependencies, count));
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags) {
  WITH_CONTEXT(cuGraphInstantiateWithFlags(exec, graph, flags));
}
#endif
