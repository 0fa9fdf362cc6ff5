/* Errors of a thread, devices and their properties, which context a call uses. */
#include "runtimetest.h"

static void before_the_driver(void) {
  int version = 0, device = -1;
  OK(cudaRuntimeGetVersion(&version));
  CHECK_THAT(version == 13000);
  CHECK_THAT(calls("cuInit") == 0);
  OK(cudaGetDevice(&device));
  CHECK_THAT(device == 0 && calls("cuInit") == 1);
  OK(cudaGetDeviceCount(&device));
  CHECK_THAT(device == 2);
  CHECK_THAT(calls("cuDevicePrimaryCtxRetain") == 0); /* no context yet */
  OK(cudaFree(NULL));
  CHECK_THAT(calls("cuDevicePrimaryCtxRetain") == 1 && calls("cuInit") == 1);
}

static void *asks(void *argument) {
  IS(cudaPeekAtLastError(), cudaSuccess); /* every thread has its own */
  return argument;
}
static void last_error(void) {
  void *memory;
  OK(cudaGetLastError());
  FAILS(cudaSetDevice(2), cudaErrorInvalidDevice);
  FAILS(cudaSetDevice(-1), cudaErrorInvalidDevice);
  FAILS(cudaMalloc(NULL, 4), cudaErrorInvalidValue);
  IS(cudaMalloc(&memory, (size_t)1 << 40), cudaErrorMemoryAllocation);
  OK(cudaDeviceSynchronize()); /* what goes well forgets nothing */
  in_thread(asks);
  IS(cudaGetLastError(), cudaErrorMemoryAllocation);
  OK(cudaGetLastError());
  CHECK_THAT(!strcmp(cudaGetErrorName(cudaErrorMemoryAllocation), "cudaErrorMemoryAllocation"));
  CHECK_THAT(!strcmp(cudaGetErrorString(cudaErrorMemoryAllocation), "out of memory"));
  CHECK_THAT(!strcmp(cudaGetErrorName((cudaError_t)77), "unrecognized error code"));
  CHECK_THAT(!strcmp(cudaGetErrorString((cudaError_t)77), "unrecognized error code"));
}

static void properties(void) {
  struct cudaDeviceProp of;
  int bus, threads;
  char text[32];
  for (int device = 0; device < 2; device++) {
    memset(&of, 0xff, sizeof of);
    OK(cudaGetDeviceProperties(&of, device));
    OK(cudaDeviceGetAttribute(&bus, cudaDevAttrPciBusId, device));
    OK(cudaDeviceGetAttribute(&threads, cudaDevAttrMaxThreadsPerBlock, device));
    CHECK_THAT(of.name[0] && of.uuid.bytes[0] && of.totalGlobalMem == 64 * MIB && of.pciBusID == bus && bus == device + 1);
    CHECK_THAT(of.maxThreadsPerBlock == threads && threads == 1024 && of.warpSize == 32 && of.major >= 8);
    CHECK_THAT(of.unifiedAddressing == 1 && of.managedMemory == 1 && of.luidDeviceNodeMask == 0 && of.reserved[55] == 0);
    OK(cudaDeviceGetPCIBusId(text, sizeof text, device));
    CHECK_THAT(strchr(text, ':'));
  }
  FAILS(cudaGetDeviceProperties(&of, 2), cudaErrorInvalidDevice);
  FAILS(cudaGetDeviceProperties(NULL, 0), cudaErrorInvalidValue);
  FAILS(cudaDeviceGetAttribute(&bus, cudaDevAttrPciBusId, 2), cudaErrorInvalidDevice);
}

static void *starts_at_the_first(void *argument) {
  int device = -1;
  OK(cudaGetDevice(&device));
  CHECK_THAT(device == 0);
  return argument;
}
static void current_device(void) {
  int device = -1, can = 0, least, greatest;
  struct cudaPointerAttributes of;
  unsigned long retained = calls("cuDevicePrimaryCtxRetain");
  for (int i = 0; i < 3; i++) OK(cudaSetDevice(i == 1 ? 0 : 1));
  OK(cudaGetDevice(&device));
  CHECK_THAT(device == 1 && calls("cuDevicePrimaryCtxRetain") == retained + 1);
  void *memory = take(MIB);
  OK(cudaPointerGetAttributes(&of, memory));
  CHECK_THAT(of.type == cudaMemoryTypeDevice && of.device == 1);
  in_thread(starts_at_the_first);
  OK(cudaSetDevice(0));
  OK(cudaPointerGetAttributes(&of, memory));
  CHECK_THAT(of.device == 1 && of.devicePointer == memory && !of.hostPointer);
  OK(cudaDeviceCanAccessPeer(&can, 0, 1));
  CHECK_THAT(can == 1);
  OK(cudaDeviceEnablePeerAccess(1, 0));
  FAILS(cudaDeviceEnablePeerAccess(1, 7), cudaErrorInvalidValue);
  FAILS(cudaDeviceEnablePeerAccess(2, 0), cudaErrorInvalidDevice);
  OK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  CHECK_THAT(greatest < least);
  OK(cudaFree(memory));
}

/* A context that the thread has made current with the driver's calls is the one that is used. */
static void foreign_context(void) {
  CUcontext made, before;
  int device = -1;
  CHECK_THAT(!cuCtxGetCurrent(&before) && !cuCtxCreate_v2(&made, 0, 1));
  OK(cudaGetDevice(&device));
  CHECK_THAT(device == 1);
  void *memory = take(MIB);
  CHECK_THAT(!cuCtxDestroy_v2(made)); /* takes its memory with it */
  struct cudaPointerAttributes of;
  OK(cudaPointerGetAttributes(&of, memory));
  CHECK_THAT(of.type == cudaMemoryTypeUnregistered);
  OK(cudaGetDevice(&device));
  CHECK_THAT(device == 0);
}

static void entry_points(void) {
  void *found = NULL;
  enum cudaDriverEntryPointQueryResult status;
  OK(cudaGetDriverEntryPointByVersion("cuMemAlloc", &found, 13000, 0, &status));
  CHECK_THAT(found == (void *)cuMemAlloc_v2 && status == cudaDriverEntryPointSuccess);
  OK(cudaGetDriverEntryPointByVersion("cuMemcpy", &found, 13000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, NULL));
  CHECK_THAT(found == (void *)cuMemcpy_ptds);
  OK(cudaGetDriverEntryPointByVersion("cuNothing", &found, 13000, 0, &status));
  CHECK_THAT(!found && status == cudaDriverEntryPointSymbolNotFound);
  OK(cudaGetDriverEntryPointByVersion("cuMemPoolCreate", &found, 9000, 0, &status));
  CHECK_THAT(!found && status == cudaDriverEntryPointVersionNotSufficent);
  FAILS(cudaGetDriverEntryPointByVersion("cuMemAlloc", &found, 99000, 0, &status), cudaErrorInvalidValue);
}

/* An error that breaks the context: every later call returns it, and it stays the last one. */
static void sticky_error(void) {
  void *memory;
  register_library();
  OK(fill((void *)16, 1, 1, NULL));
  IS(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
  IS(cudaGetLastError(), cudaErrorIllegalAddress);
  IS(cudaGetLastError(), cudaErrorIllegalAddress);
  IS(cudaMalloc(&memory, 4), cudaErrorIllegalAddress);
  IS(cudaStreamQuery(NULL), cudaErrorIllegalAddress);
  IS(cudaPeekAtLastError(), cudaErrorIllegalAddress);
}

/* Its memory goes with the context, and the next call has another one. */
static void reset(void) {
  size_t before, after, total;
  CUcontext old, new;
  OK(cudaMemGetInfo(&before, &total));
  void *memory = take(4 * MIB);
  CHECK_THAT(!cuCtxGetCurrent(&old));
  OK(cudaDeviceReset());
  CHECK_THAT(!cuCtxGetCurrent(&new) && !new);
  OK(cudaMemGetInfo(&after, &total));
  CHECK_THAT(after == before && !cuCtxGetCurrent(&new) && new && new != old);
  FAILS(cudaFree(memory), cudaErrorInvalidValue);
}

int main(void) {
  before_the_driver();
  last_error();
  properties();
  current_device();
  foreign_context();
  entry_points();
  OK(cudaProfilerStart());
  OK(cudaProfilerStop());
  reset();
  sticky_error();
  return 0;
}
