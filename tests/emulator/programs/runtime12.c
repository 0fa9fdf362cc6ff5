/* What the runtime 12 has otherwise than later versions: two layouts, and four calls. */
#include "runtimetest.h"

static cudaStream_t stream;

static void properties(void) {
  struct { struct cudaDeviceProp of; int after; } device;
  int version = 0, clock, peak;
  memset(&device, 0xff, sizeof device);
  OK(cudaRuntimeGetVersion(&version));
  CHECK_THAT(version == 12040);
  OK(cudaGetDeviceProperties_v2(&device.of, 1));
  OK(cudaDeviceGetAttribute(&clock, cudaDevAttrClockRate, 1));
  OK(cudaDeviceGetAttribute(&peak, cudaDevAttrMemoryClockRate, 1));
  CHECK_THAT(device.of.clockRate == clock && device.of.memoryClockRate == peak && device.of.totalGlobalMem == 64 * MIB);
  CHECK_THAT(device.of.maxThreadsPerBlock == 1024 && device.of.warpSize == 32 && device.of.major == 8 && device.of.pciBusID == 2);
  CHECK_THAT(device.of.multiProcessorCount == 108 && device.of.unifiedAddressing == 1);
  CHECK_THAT(device.of.sharedMemPerBlockOptin > device.of.sharedMemPerBlock && device.of.reserved[62] == 0);
  CHECK_THAT(device.after == -1); /* nothing is written behind it */
  FAILS(cudaGetDeviceProperties_v2(NULL, 0), cudaErrorInvalidValue);
}

static void pointers(void) {
  struct { struct cudaPointerAttributes of; long after; } memory;
  void *pinned, *owned = take(MIB);
  memset(&memory, 0xff, sizeof memory);
  OK(cudaPointerGetAttributes(&memory.of, owned));
  CHECK_THAT(memory.of.type == cudaMemoryTypeDevice && memory.of.device == 0 && memory.of.devicePointer == owned);
  CHECK_THAT(memory.after == -1);
  OK(cudaPointerGetAttributes(&memory.of, &memory));
  CHECK_THAT(memory.of.type == cudaMemoryTypeUnregistered && memory.of.hostPointer == &memory && memory.after == -1);
  OK(cudaHostAlloc(&pinned, MIB, 0));
  OK(cudaPointerGetAttributes(&memory.of, pinned));
  CHECK_THAT(memory.of.devicePointer == pinned && memory.of.type == cudaMemoryTypeHost);
  OK(cudaFreeHost(pinned));
  OK(cudaFree(owned));
}

static void captured(void) {
  enum cudaStreamCaptureStatus status;
  unsigned long long id = 0;
  cudaGraph_t graph = NULL;
  const cudaGraphNode_t *nodes = NULL;
  size_t count = 9;
  cudaGraphExec_t exec;
  uint32_t *memory = take(MIB);
  OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  OK(fill(memory, 7, 4, stream));
  OK(cudaStreamGetCaptureInfo_v2(stream, &status, &id, &graph, &nodes, &count));
  CHECK_THAT(status == cudaStreamCaptureStatusActive && id && graph && count == 1 && nodes[0]);
  OK(cudaStreamEndCapture(stream, &graph));
  OK(cudaStreamGetCaptureInfo_v2(stream, &status, &id, NULL, NULL, NULL));
  CHECK_THAT(status == cudaStreamCaptureStatusNone);
  OK(cudaGraphInstantiate(&exec, graph, 0));
  OK(cudaGraphDestroy(graph));
  CHECK_THAT(word_at(memory) == OLD_WORD);
  OK(cudaGraphLaunch(exec, stream));
  OK(cudaStreamSynchronize(stream));
  CHECK_THAT(word_at(memory + 3) == 7 && word_at(memory + 4) == OLD_WORD);
  OK(cudaGraphExecDestroy(exec));
  OK(cudaFree(memory));
}

int main(void) {
  register_library();
  properties();
  OK(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, 0));
  pointers();
  captured();
  OK(cudaStreamDestroy(stream));
  return 0;
}
