/* Calls that the runtime 13 has otherwise than 12, or 12 has not. */
#include "driver/extra.h"
#include "internal.h"
#if EMULATED_RUNTIME == 13

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device) {
  WITH_DRIVER(runtime_properties(properties, device));
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
cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t node, cudaGraphNode_t *dependencies, cudaGraphEdgeData *edges,
                                         size_t *count) {
  WITH_DRIVER(cuGraphNodeGetDependencies_v2(node, dependencies, edges, count));
}
cudaError_t cudaGraphAddNode(cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *dependencies,
                             const cudaGraphEdgeData *edges, size_t count, struct cudaGraphNodeParams *params) {
  WITH_CONTEXT(cuGraphAddNode_v2(node, graph, dependencies, edges, count, (CUgraphNodeParams *)params));
}
cudaError_t cudaLibraryLoadData(cudaLibrary_t *library, const void *code, enum cudaJitOption *jit, void **jit_values,
                                unsigned int jit_count, enum cudaLibraryOption *options, void **values, unsigned int count) {
  WITH_CONTEXT(cuLibraryLoadData(library, code, (CUjit_option *)jit, jit_values, jit_count, (CUlibraryOption *)options, values,
                                 count));
}
cudaError_t cudaLibraryUnload(cudaLibrary_t library) { WITH_CONTEXT(cuLibraryUnload(library)); }
cudaError_t cudaLibraryGetKernel(cudaKernel_t *kernel, cudaLibrary_t library, const char *name) {
  WITH_CONTEXT(cuLibraryGetKernel(kernel, library, name));
}
#endif
