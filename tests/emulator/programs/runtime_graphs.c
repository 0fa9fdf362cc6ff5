/* Capture and graphs. */
#include "runtimetest.h"

static cudaStream_t stream;

static enum cudaStreamCaptureStatus status_of(cudaStream_t of) {
  enum cudaStreamCaptureStatus status;
  OK(cudaStreamIsCapturing(of, &status));
  return status;
}

/* The second depends on the first; a drawing has both. */
static void both_nodes(cudaGraph_t graph) {
  cudaGraphNode_t nodes[2], before = NULL;
  cudaGraphEdgeData edge;
  size_t count = 2;
  char path[] = "/tmp/graph-XXXXXX", text[512] = "";
  OK(cudaGraphGetNodes(graph, nodes, &count));
  count = 1;
  OK(cudaGraphNodeGetDependencies(nodes[1], &before, &edge, &count));
  CHECK_THAT(count == 1 && before == nodes[0] && edge.type == 0);
  int fd = mkstemp(path);
  OK(cudaGraphDebugDotPrint(graph, path, 0));
  CHECK_THAT(read(fd, text, sizeof text - 1) > 0 && strstr(text, "digraph") && strstr(text, "->"));
  close(fd);
  unlink(path);
}

static void replay(void) {
  uint64_t *data = take(MIB), count = 2, seed = 3, expected, got;
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  size_t nodes = 0;
  void *args[] = {&data, &count, &seed};
  OK(cudaMemset(data, 0, 16));
  OK(cudaDeviceSynchronize()); /* `stream` does not wait for the default one */
  for (int i = 0; i < 4; i++) OK(cudaLaunchKernel(mix_u64, one, one, args, 0, stream));
  OK(cudaMemcpyAsync(&expected, data, 8, cudaMemcpyDeviceToHost, stream));
  OK(cudaMemset(data, 0, 16));
  OK(cudaDeviceSynchronize());
  OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  OK(cudaLaunchKernel(mix_u64, one, one, args, 0, stream));
  OK(cudaLaunchKernel(mix_u64, one, one, args, 0, stream));
  OK(cudaStreamEndCapture(stream, &graph));
  CHECK_THAT(word_at(data) == 0); /* nothing has run */
  OK(cudaGraphGetNodes(graph, NULL, &nodes));
  CHECK_THAT(nodes == 2);
  both_nodes(graph);
  OK(cudaGraphInstantiateWithFlags(&exec, graph, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH));
  OK(cudaGraphDestroy(graph));
  OK(cudaGraphLaunch(exec, stream));
  OK(cudaGraphLaunch(exec, stream));
  OK(cudaMemcpyAsync(&got, data, 8, cudaMemcpyDeviceToHost, stream));
  CHECK_THAT(got == expected && got);
  OK(cudaGraphExecDestroy(exec));
  OK(cudaFree(data));
}

static void count_down(void *left) { --*(int *)left; }

/* A graph and what is made of it keep it, and whoever made it does. */
static void kept(void) {
  int left = 2;
  uint64_t high = 1;
  cudaUserObject_t given, shared;
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  FAILS(cudaUserObjectCreate(&given, &left, count_down, 1, 0), cudaErrorInvalidValue);
  OK(cudaUserObjectCreate(&given, &left, count_down, 1, 1));
  OK(cudaUserObjectCreate(&shared, &left, count_down, 1, 1));
  OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  OK(cudaStreamEndCapture(stream, &graph));
  OK(cudaGraphRetainUserObject(graph, given, 1, 1)); /* the graph's now */
  OK(cudaGraphRetainUserObject(graph, shared, 2, 0));
  OK(cudaGraphInstantiateWithFlags(&exec, graph, 0));
  OK(cudaGraphDestroy(graph));
  CHECK_THAT(left == 2);
  OK(cudaGraphExecDestroy(exec));
  CHECK_THAT(left == 1);
  OK(cudaUserObjectRelease(shared, 1));
  CHECK_THAT(left == 0);
  OK(cudaDeviceSetGraphMemAttribute(0, cudaGraphMemAttrUsedMemHigh, &(uint64_t){0}));
  OK(cudaDeviceGetGraphMemAttribute(0, cudaGraphMemAttrUsedMemHigh, &high));
  CHECK_THAT(high == 0);
}

static void asked(void) {
  enum cudaStreamCaptureStatus status;
  unsigned long long id = 0;
  cudaGraph_t graph = NULL, ended;
  const cudaGraphNode_t *nodes = NULL;
  const cudaGraphEdgeData *edges;
  size_t count = 9;
  uint32_t *memory = take(MIB);
  OK(cudaStreamGetCaptureInfo(stream, &status, &id, &graph, &nodes, &edges, &count));
  CHECK_THAT(status == cudaStreamCaptureStatusNone && id == 0);
  OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  CHECK_THAT(status_of(stream) == cudaStreamCaptureStatusActive);
  OK(fill(memory, 1, 1, stream));
  OK(cudaStreamGetCaptureInfo(stream, &status, &id, &graph, &nodes, &edges, &count));
  CHECK_THAT(status == cudaStreamCaptureStatusActive && id && graph && count == 1 && nodes[0] && !edges);
  cudaGraphNode_t first = nodes[0];
  OK(cudaStreamUpdateCaptureDependencies(stream, NULL, NULL, 0, 1)); /* the next one depends on nothing */
  OK(cudaStreamGetCaptureInfo(stream, &status, NULL, NULL, NULL, NULL, &count));
  CHECK_THAT(count == 0);
  OK(cudaStreamUpdateCaptureDependencies(stream, &first, NULL, 1, 0)); /* on the first again */
  OK(cudaStreamGetCaptureInfo(stream, &status, NULL, NULL, NULL, NULL, &count));
  CHECK_THAT(count == 1);
  OK(cudaStreamUpdateCaptureDependencies(stream, NULL, NULL, 0, 1));
  OK(fill(memory, 2, 1, stream));
  IS(cudaStreamEndCapture(stream, &ended), cudaErrorStreamCaptureUnjoined);
  IS(cudaGetLastError(), cudaErrorStreamCaptureUnjoined);
  OK(cudaFree(memory));
}

/* Two streams captured together, into a graph that was there before. */
static void joined(void) {
  CUgraph graph;
  cudaGraph_t ended;
  cudaGraphExec_t exec;
  cudaStream_t other;
  cudaEvent_t event;
  uint32_t *memory = take(MIB);
  size_t count = 0;
  CHECK_THAT(!cuGraphCreate(&graph, 0));
  OK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
  OK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  OK(cudaStreamBeginCaptureToGraph(stream, graph, NULL, NULL, 0, cudaStreamCaptureModeGlobal));
  OK(fill(memory, 1, 1, stream));
  OK(cudaEventRecord(event, stream));
  OK(cudaStreamWaitEvent(other, event, 0));
  CHECK_THAT(status_of(other) == cudaStreamCaptureStatusActive);
  OK(fill(memory + 1, 2, 1, other));
  OK(cudaEventRecord(event, other));
  OK(cudaStreamWaitEvent(stream, event, 0));
  OK(cudaStreamEndCapture(stream, &ended));
  CHECK_THAT(ended == graph);
  OK(cudaGraphGetNodes(graph, NULL, &count));
  CHECK_THAT(count == 2);
  OK(cudaGraphInstantiateWithFlags(&exec, graph, 0));
  OK(cudaGraphLaunch(exec, stream));
  OK(cudaStreamSynchronize(stream));
  CHECK_THAT(word_at(memory) == 1 && word_at(memory + 1) == 2);
  OK(cudaGraphExecDestroy(exec));
  OK(cudaGraphDestroy(graph));
  OK(cudaEventDestroy(event));
  OK(cudaStreamDestroy(other));
  OK(cudaFree(memory));
}

/* What a capture forbids, and how a thread allows itself more. */
static void forbidden(void) {
  cudaGraph_t graph;
  void *memory;
  enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  OK(cudaThreadExchangeStreamCaptureMode(&mode));
  CHECK_THAT(mode == cudaStreamCaptureModeGlobal);
  OK(cudaMalloc(&memory, MIB));
  OK(cudaThreadExchangeStreamCaptureMode(&mode));
  CHECK_THAT(mode == cudaStreamCaptureModeRelaxed);
  IS(cudaFree(memory), cudaErrorStreamCaptureUnsupported);
  CHECK_THAT(status_of(stream) == cudaStreamCaptureStatusInvalidated);
  IS(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureInvalidated);
  IS(cudaGetLastError(), cudaErrorStreamCaptureInvalidated);
  OK(cudaFree(memory));
  FAILS(cudaStreamEndCapture(stream, &graph), cudaErrorIllegalState);
}

int main(void) {
  register_library();
  OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  replay();
  kept();
  asked();
  joined();
  forbidden();
  return 0;
}
