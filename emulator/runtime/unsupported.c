/* Calls that exist, are refused and counted: graphs that are built by hand, looked into or drawn. */
#include "null_work.h"
#include "internal.h"

static cudaError_t refuse(const char *function) {
  emulator_unexpected(function);
  return runtime_error(cudaErrorNotSupported);
}

cudaError_t cudaGraphAddNode(cudaGraphNode_t *node, cudaGraph_t graph, const cudaGraphNode_t *dependencies,
                             const cudaGraphEdgeData *edges, size_t count, struct cudaGraphNodeParams *params) {
  (void)node, (void)graph, (void)dependencies, (void)edges, (void)count, (void)params;
  return refuse(__func__);
}
cudaError_t cudaGraphConditionalHandleCreate(cudaGraphConditionalHandle *handle, cudaGraph_t graph, unsigned int value,
                                             unsigned int flags) {
  (void)handle, (void)graph, (void)value, (void)flags;
  return refuse(__func__);
}
cudaError_t cudaGraphDebugDotPrint(cudaGraph_t graph, const char *path, unsigned int flags) {
  (void)graph, (void)path, (void)flags;
  return refuse(__func__);
}
cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t node, cudaGraphNode_t *dependencies, cudaGraphEdgeData *edges,
                                         size_t *count) {
  (void)node, (void)dependencies, (void)edges, (void)count;
  return refuse(__func__);
}
