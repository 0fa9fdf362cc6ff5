/* Stream capture and graphs: what is recorded, what is refused, and what poisons a capture. */
#include "stubtest.h"

static CUstream stream, other;
static CUdeviceptr data;

static void begin_capture(CUstreamCaptureMode mode) { OK(cuStreamBeginCapture_v2(stream, mode)); }
static CUresult end(void) {
  CUgraph graph;
  CUresult result = cuStreamEndCapture(stream, &graph);
  CHECK_THAT((graph == NULL) == (result != CUDA_SUCCESS));
  if (graph) OK(cuGraphDestroy(graph));
  return result;
}
static CUstreamCaptureStatus status(CUstream of) {
  CUstreamCaptureStatus now;
  OK(cuStreamIsCapturing(of, &now));
  return now;
}
static uint32_t first_word(void) {
  uint32_t value;
  OK(cuMemcpyDtoH_v2(&value, data, 4));
  return value;
}

static void replay(void) {
  CUgraph graph;
  CUgraphExec exec;
  size_t nodes = 0;
  uint64_t plain[4], replayed[4];
  CHECK_THAT(status(stream) == CU_STREAM_CAPTURE_STATUS_NONE);
  OK(cuMemsetD8_v2(data, 0, 32));
  begin_capture(CU_STREAM_CAPTURE_MODE_GLOBAL);
  CHECK_THAT(status(stream) == CU_STREAM_CAPTURE_STATUS_ACTIVE);
  for (uint64_t seed = 1; seed < 5; seed++) OK(mix(stream, data, 4, seed));
  OK(cuStreamEndCapture(stream, &graph));
  CHECK_THAT(first_word() == 0); /* nothing has run */
  OK(cuGraphGetNodes(graph, NULL, &nodes));
  CHECK_THAT(nodes == 4);
  OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
  OK(cuGraphDestroy(graph));
  OK(cuGraphLaunch(exec, stream));
  OK(cuGraphLaunch(exec, stream));
  OK(cuStreamSynchronize(stream));
  OK(cuMemcpyDtoH_v2(replayed, data, 32));
  OK(cuGraphExecDestroy(exec));
  OK(cuMemsetD8Async(data, 0, 32, stream));
  for (uint64_t i = 0; i < 8; i++) OK(mix(stream, data, 4, i % 4 + 1));
  OK(cuStreamSynchronize(stream));
  OK(cuMemcpyDtoH_v2(plain, data, 32));
  CHECK_THAT(!memcmp(plain, replayed, 32));
}

/* Each answer may be left out, but edges come with the nodes at their other end. */
static void asked_for_parts(void) {
  CUstreamCaptureStatus now;
  const CUgraphEdgeData *edges;
  const CUgraphNode *nodes;
  size_t count = 7;
  begin_capture(CU_STREAM_CAPTURE_MODE_GLOBAL);
  OK(cuStreamGetCaptureInfo_v3(stream, &now, NULL, NULL, NULL, NULL, NULL));
  OK(cuStreamGetCaptureInfo_v3(stream, &now, NULL, NULL, &nodes, &edges, &count));
  CHECK_THAT(now == CU_STREAM_CAPTURE_STATUS_ACTIVE && count == 0);
  IS(cuStreamGetCaptureInfo_v3(stream, &now, NULL, NULL, NULL, &edges, &count), CUDA_ERROR_INVALID_VALUE);
  OK(end());
}

/* Work of a second stream belongs to the graph if an event leads there, and must lead back. */
static void forks(void) {
  CUevent there, back;
  CUgraph graph;
  CUgraphExec exec;
  OK(cuEventCreate(&there, CU_EVENT_DISABLE_TIMING));
  OK(cuEventCreate(&back, CU_EVENT_DISABLE_TIMING));
  begin_capture(CU_STREAM_CAPTURE_MODE_GLOBAL);
  OK(fill(stream, data, 1, 1));
  OK(cuEventRecord(there, stream));
  OK(cuStreamWaitEvent(other, there, 0));
  CHECK_THAT(status(other) == CU_STREAM_CAPTURE_STATUS_ACTIVE);
  OK(fill(other, data, 2, 1));
  OK(cuEventRecord(back, other));
  OK(cuStreamWaitEvent(stream, back, 0));
  OK(cuStreamEndCapture(stream, &graph));
  CHECK_THAT(status(other) == CU_STREAM_CAPTURE_STATUS_NONE);
  OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
  OK(cuGraphLaunch(exec, NULL));
  CHECK_THAT(first_word() == 2);
  OK(cuGraphExecDestroy(exec));
  OK(cuGraphDestroy(graph));

  begin_capture(CU_STREAM_CAPTURE_MODE_GLOBAL);
  OK(cuEventRecord(there, stream));
  OK(cuStreamWaitEvent(other, there, 0));
  OK(fill(other, data, 3, 1));
  IS(end(), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);

  OK(cuEventRecord(back, other));
  begin_capture(CU_STREAM_CAPTURE_MODE_RELAXED);
  IS(cuStreamWaitEvent(stream, back, 0), CUDA_ERROR_STREAM_CAPTURE_ISOLATION); /* recorded outside */
  IS(end(), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);

  begin_capture(CU_STREAM_CAPTURE_MODE_RELAXED);
  OK(cuEventRecord(there, stream));
  IS(cuEventQuery(there), CUDA_ERROR_CAPTURED_EVENT); /* refused in every mode */
  IS(end(), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  OK(cuEventDestroy_v2(there));
  OK(cuEventDestroy_v2(back));
}

static CUresult allocate(void) {
  CUdeviceptr address;
  CUresult result = cuMemAlloc_v2(&address, MIB);
  if (!result) OK(cuMemFree_v2(address));
  return result;
}

static CUstreamCaptureMode exchange(CUstreamCaptureMode mode) {
  OK(cuThreadExchangeStreamCaptureMode(&mode));
  return mode;
}

static void own_thread(void) {
  CUresult (*unsafe[])(void) = {allocate, cuCtxSynchronize};
  for (unsigned i = 0; i < 2; i++) {
    begin_capture(CU_STREAM_CAPTURE_MODE_GLOBAL);
    IS(unsafe[i](), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    CHECK_THAT(status(stream) == CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    IS(fill(stream, data, 1, 1), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    IS(end(), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  }
  begin_capture(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  IS(allocate(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  IS(end(), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  begin_capture(CU_STREAM_CAPTURE_MODE_RELAXED);
  OK(allocate());
  IS(cuStreamSynchronize(stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED); /* of the stream itself: never */
  IS(end(), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  /* a relaxed thread may allocate in spite of a global capture */
  begin_capture(CU_STREAM_CAPTURE_MODE_GLOBAL);
  CHECK_THAT(exchange(CU_STREAM_CAPTURE_MODE_RELAXED) == CU_STREAM_CAPTURE_MODE_GLOBAL);
  OK(allocate());
  OK(cuStreamQuery(other));
  CHECK_THAT(exchange(CU_STREAM_CAPTURE_MODE_GLOBAL) == CU_STREAM_CAPTURE_MODE_RELAXED);
  OK(end());
  OK(allocate());
}

/* Graphs made node by node, and changed when they are instantiated. */
static CUgraph chain(uint32_t second, bool longer) {
  CUgraph graph;
  CUgraphNode nodes[3];
  uint64_t count = 1;
  uint32_t first = 8;
  OK(cuGraphCreate(&graph, 0));
  CUDA_KERNEL_NODE_PARAMS kernel = {function("fill_u32"), 1, 1, 1, 1, 1, 1, 0, (void *[]){&data, &first, &count}, NULL, NULL, NULL};
  CUDA_MEMSET_NODE_PARAMS fills = {.dst = data, .value = second, .elementSize = 4, .width = 1, .height = 1};
  CUDA_MEMCPY3D copies = {.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = data, .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                          .dstDevice = data + 64, .WidthInBytes = 4, .Height = 1, .Depth = 1};
  OK(cuGraphAddKernelNode_v2(&nodes[0], graph, NULL, 0, &kernel));
  OK(cuGraphAddMemsetNode(&nodes[1], graph, nodes, 1, &fills, context));
  OK(cuGraphAddMemcpyNode(&nodes[2], graph, nodes + 1, 1, &copies, context));
  if (longer) OK(cuGraphAddEmptyNode(&nodes[2], graph, nodes, 1));
  return graph;
}
static void by_hand(void) {
  CUgraphExec exec;
  CUgraphExecUpdateResultInfo info;
  CUgraph first = chain(9, false), second = chain(10, false), longer = chain(11, true), clone;
  uint32_t copied;
  OK(cuGraphInstantiateWithFlags(&exec, first, 0));
  OK(cuGraphLaunch(exec, stream));
  OK(cuStreamSynchronize(stream));
  OK(cuMemcpyDtoH_v2(&copied, data + 64, 4));
  CHECK_THAT(first_word() == 9 && copied == 9);
  OK(cuGraphClone(&clone, second));
  OK(cuGraphExecUpdate_v2(exec, clone, &info));
  IS(cuGraphExecUpdate_v2(exec, longer, &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
  CHECK_THAT(info.result == CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
  OK(cuGraphLaunch(exec, stream));
  OK(cuStreamSynchronize(stream));
  CHECK_THAT(first_word() == 10);
  /* a launch in a capture becomes part of the graph */
  CUgraph outer;
  CUgraphExec outer_exec;
  OK(cuMemsetD32Async(data, 0, 1, stream));
  OK(cuStreamSynchronize(stream)); /* first_word() waits for the default stream only */
  begin_capture(CU_STREAM_CAPTURE_MODE_GLOBAL);
  OK(cuGraphLaunch(exec, stream));
  OK(cuStreamEndCapture(stream, &outer));
  OK(cuGraphExecDestroy(exec));
  OK(cuGraphInstantiateWithFlags(&outer_exec, outer, 0));
  CHECK_THAT(first_word() == 0);
  OK(cuGraphLaunch(outer_exec, stream));
  OK(cuStreamSynchronize(stream));
  CHECK_THAT(first_word() == 10);
  OK(cuGraphExecDestroy(outer_exec));
  CUgraph graphs[] = {first, second, longer, clone, outer};
  for (unsigned i = 0; i < 5; i++) OK(cuGraphDestroy(graphs[i]));
}

struct elsewhere { CUstreamCaptureMode mode; CUresult result; };
static void *allocate_elsewhere(void *argument) {
  struct elsewhere *elsewhere = argument;
  OK(cuCtxSetCurrent(context));
  exchange(elsewhere->mode);
  elsewhere->result = allocate();
  return NULL;
}
static void *end_elsewhere(void *argument) {
  CUgraph graph;
  OK(cuCtxSetCurrent(context));
  *(CUresult *)argument = cuStreamEndCapture(stream, &graph);
  return NULL;
}
static CUresult from_other_thread(CUstreamCaptureMode mode) {
  struct elsewhere elsewhere = {.mode = mode};
  pthread_t thread;
  CHECK_THAT(!pthread_create(&thread, NULL, allocate_elsewhere, &elsewhere) && !pthread_join(thread, NULL));
  return elsewhere.result;
}
static void other_thread(void) {
  begin_capture(CU_STREAM_CAPTURE_MODE_GLOBAL);
  OK(from_other_thread(CU_STREAM_CAPTURE_MODE_RELAXED));
  OK(from_other_thread(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  CHECK_THAT(status(stream) == CU_STREAM_CAPTURE_STATUS_ACTIVE);
  IS(from_other_thread(CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  IS(end(), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  begin_capture(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  OK(from_other_thread(CU_STREAM_CAPTURE_MODE_GLOBAL));
  pthread_t thread;
  CUresult result;
  CHECK_THAT(!pthread_create(&thread, NULL, end_elsewhere, &result) && !pthread_join(thread, NULL));
  CHECK_THAT(result == CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
  OK(end());
}

static void default_stream(void) {
  CUstream blocking;
  OK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
  IS(cuStreamBeginCapture_v2(NULL, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  OK(cuStreamBeginCapture_v2(blocking, CU_STREAM_CAPTURE_MODE_RELAXED));
  IS(spin(NULL, 1), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  CUgraph graph;
  IS(cuStreamEndCapture(blocking, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  IS(cuStreamEndCapture(blocking, &graph), CUDA_ERROR_ILLEGAL_STATE);
  begin_capture(CU_STREAM_CAPTURE_MODE_RELAXED); /* a non-blocking stream does not concern the default one */
  OK(spin(NULL, 1));
  OK(end());
  OK(cuStreamDestroy_v2(blocking));
}

int main(void) {
  begin();
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
  data = take(MIB);
  replay();
  asked_for_parts();
  forks();
  by_hand();
  own_thread();
  other_thread();
  default_stream();
  OK(cuMemFree_v2(data));
  return 0;
}
