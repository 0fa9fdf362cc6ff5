/* Memory, copies of every kind, streams, events and what the host does in a stream. */
#include "runtimetest.h"

static cudaStream_t stream;

static void allocation(void) {
  void *memory = &memory, *more;
  size_t before, after, total;
  OK(cudaMalloc(&memory, 0));
  CHECK_THAT(memory == NULL);
  OK(cudaFree(NULL));
  OK(cudaFreeHost(NULL));
  OK(cudaMemGetInfo(&before, &total));
  memory = take(4 * MIB);
  OK(cudaMemGetInfo(&after, &total));
  CHECK_THAT(before - after == 4 * MIB && total == 64 * MIB);
  FAILS(cudaMalloc(&more, 100 * MIB), cudaErrorMemoryAllocation);
  OK(cudaFree(memory));
  FAILS(cudaFree(memory), cudaErrorInvalidValue);
}

static void pointers(void) {
  static char pageable[1 << 16] __attribute__((aligned(4096)));
  struct cudaPointerAttributes of;
  char *device = take(MIB), *host;
  CUdeviceptr managed;
  void *seen = NULL;
  OK(cudaHostAlloc((void **)&host, MIB, 0));
  OK(cudaPointerGetAttributes(&of, device + 100));
  CHECK_THAT(of.type == cudaMemoryTypeDevice && of.device == 0 && of.devicePointer == device + 100 && !of.hostPointer);
  OK(cudaPointerGetAttributes(&of, host + 1));
  CHECK_THAT(of.type == cudaMemoryTypeHost && of.device == 0 && of.devicePointer == host + 1 && of.hostPointer == host + 1);
  OK(cudaHostGetDevicePointer(&seen, host, 0));
  CHECK_THAT(seen == host);
  FAILS(cudaHostGetDevicePointer(NULL, host, 0), cudaErrorInvalidValue);
  FAILS(cudaHostGetDevicePointer(&seen, pageable, 0), cudaErrorInvalidValue);
  CHECK_THAT(!cuMemAllocManaged(&managed, MIB, CU_MEM_ATTACH_GLOBAL));
  OK(cudaPointerGetAttributes(&of, (void *)managed));
  CHECK_THAT(of.type == cudaMemoryTypeManaged && of.devicePointer == of.hostPointer);
  OK(cudaPointerGetAttributes(&of, pageable));
  CHECK_THAT(of.type == cudaMemoryTypeUnregistered && of.device == cudaInvalidDeviceId && of.hostPointer == pageable);
  OK(cudaHostRegister(pageable, sizeof pageable, 0));
  OK(cudaPointerGetAttributes(&of, pageable));
  CHECK_THAT(of.type == cudaMemoryTypeHost);
  FAILS(cudaHostRegister(pageable, sizeof pageable, 0), cudaErrorHostMemoryAlreadyRegistered);
  OK(cudaHostUnregister(pageable));
  FAILS(cudaHostUnregister(pageable), cudaErrorHostMemoryNotRegistered);
  FAILS(cudaPointerGetAttributes(NULL, pageable), cudaErrorInvalidValue);
  OK(cudaFreeHost(host));
  OK(cudaFree(device));
  OK(cudaFree((void *)managed));
}

/* Every kind, synchronously and in a stream, and those that do not exist or do not fit. */
static void kinds(void) {
  char *a = take(MIB), *b = take(MIB), text[16] = "sixteen letters", back[16];
  enum cudaMemcpyKind in[] = {cudaMemcpyHostToDevice, cudaMemcpyDefault};
  enum cudaMemcpyKind out[] = {cudaMemcpyDeviceToHost, cudaMemcpyDefault};
  for (int i = 0; i < 2; i++) {
    enum cudaMemcpyKind between = i ? cudaMemcpyDefault : cudaMemcpyDeviceToDevice;
    memset(back, 0, sizeof back);
    OK(cudaMemset(b, 0, 16));
    OK(cudaMemcpy(a, text, 16, in[i]));
    OK(cudaMemcpy(b, a, 16, between));
    OK(cudaMemcpy(back, b, 16, out[i]));
    CHECK_THAT(!memcmp(back, text, 16));
    memset(back, 0, sizeof back);
    OK(cudaMemsetAsync(a, 0, 32, stream));
    OK(cudaMemcpyAsync(a + 16, text, 16, in[i], stream));
    OK(cudaMemcpyAsync(b, a + 16, 16, between, stream));
    OK(cudaMemcpyAsync(back, b, 16, out[i], stream));
    CHECK_THAT(!memcmp(back, text, 16));
  }
  OK(cudaMemcpy(back, "other", 6, cudaMemcpyHostToHost));
  CHECK_THAT(!strcmp(back, "other"));
  OK(cudaMemcpy(a, b, 0, cudaMemcpyDeviceToDevice));
  FAILS(cudaMemcpy(a, text, 16, (enum cudaMemcpyKind)5), cudaErrorInvalidMemcpyDirection);
  FAILS(cudaMemcpyAsync(a, text, 16, (enum cudaMemcpyKind)5, stream), cudaErrorInvalidMemcpyDirection);
  FAILS(cudaMemcpy(text, a, 16, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  OK(cudaMemcpyPeerAsync(b, 1, a, 0, 16, stream));
  FAILS(cudaMemcpyPeerAsync(b, 2, a, 0, 16, stream), cudaErrorInvalidDevice);
  OK(cudaStreamSynchronize(stream));
  OK(cudaFree(a));
  OK(cudaFree(b));
}

/* A copy to pageable memory has arrived when the call returns; one to pinned memory waits for its turn in the stream. */
static void waiting(void) {
  char *device = take(MIB), *pinned, pageable[8] = "before";
  OK(cudaHostAlloc((void **)&pinned, 64, 0));
  strcpy(pinned, "before");
  OK(cudaMemset(device, 'x', 8));
  OK(cudaDeviceSynchronize());
  hold(stream);
  OK(cudaMemcpyAsync(pinned, device, 6, cudaMemcpyDeviceToHost, stream));
  OK(cudaMemcpyAsync(device, pageable, 6, cudaMemcpyHostToDevice, stream));
  memcpy(pageable, "after", 6); /* the bytes were taken when the call was made */
  IS(cudaStreamQuery(stream), cudaErrorNotReady);
  OK(cudaPeekAtLastError()); /* not ready is no error */
  CHECK_THAT(!strcmp(pinned, "before"));
  release();
  OK(cudaMemcpyAsync(pageable, device, 6, cudaMemcpyDeviceToHost, stream));
  CHECK_THAT(!memcmp(pageable, "before", 6) && !memcmp(pinned, "xxxxxx", 6));
  OK(cudaStreamSynchronize(stream));
  OK(cudaFreeHost(pinned));
  OK(cudaFree(device));
}

static void rows(void) {
  char *device = take(MIB), letters[4][16], back[4][16];
  for (int y = 0; y < 4; y++) memset(letters[y], 'a' + y, 16);
  memset(back, '-', sizeof back);
  OK(cudaMemset(device, '.', MIB));
  OK(cudaDeviceSynchronize());
  unsigned long before = calls("cuMemcpy2DAsync");
  OK(cudaMemcpy2DAsync(device, 512, letters, 16, 8, 4, cudaMemcpyHostToDevice, stream));
  OK(cudaMemcpy2DAsync(device + 4096, 256, device, 512, 8, 4, cudaMemcpyDeviceToDevice, stream));
  OK(cudaMemcpy2DAsync(back, 16, device + 4096, 256, 10, 4, cudaMemcpyDefault, stream));
  OK(cudaStreamSynchronize(stream));
  CHECK_THAT(calls("cuMemcpy2DAsync") == before + 3 && calls("cuMemcpyHtoDAsync") < 10);
  for (int y = 0; y < 4; y++) CHECK_THAT(!memcmp(back[y], letters[y], 8) && back[y][8] == '.' && back[y][10] == '-');
  OK(cudaMemcpy2DAsync(device, 512, letters, 16, 8, 0, cudaMemcpyHostToDevice, stream));
  FAILS(cudaMemcpy2DAsync(device, 4, letters, 16, 8, 4, cudaMemcpyHostToDevice, stream), cudaErrorInvalidPitchValue);
  FAILS(cudaMemcpy2DAsync(device, 512, letters, 16, 8, 4, (enum cudaMemcpyKind)9, stream), cudaErrorInvalidMemcpyDirection);
  OK(cudaFree(device));
}

static cudaError_t in_callback;
static void callback(cudaStream_t in, cudaError_t status, void *argument) {
  in_callback = cudaStreamQuery(in);
  *(int *)argument = status == cudaSuccess ? 1 : -1;
}
static void streams(void) {
  cudaStream_t first, second;
  cudaEvent_t start, end, untimed;
  int called = 0, priority = 0;
  float milliseconds = -1;
  OK(cudaStreamCreate(&first));
  OK(cudaStreamCreateWithPriority(&second, cudaStreamNonBlocking, -1));
  OK(cudaStreamGetPriority(second, &priority));
  CHECK_THAT(priority == -1);
  OK(cudaEventCreate(&start));
  OK(cudaEventCreate(&end));
  OK(cudaEventCreateWithFlags(&untimed, cudaEventDisableTiming));
  OK(cudaEventRecord(start, first));
  hold(first);
  OK(cudaEventRecordWithFlags(end, first, 0));
  IS(cudaEventQuery(end), cudaErrorNotReady);
  OK(cudaStreamWaitEvent(second, end, 0));
  OK(cudaStreamAddCallback(second, callback, &called, 0));
  IS(cudaStreamQuery(second), cudaErrorNotReady);
  OK(cudaPeekAtLastError());
  CHECK_THAT(called == 0);
  release();
  OK(cudaEventSynchronize(end));
  OK(cudaStreamSynchronize(second));
  CHECK_THAT(called == 1 && in_callback == cudaErrorNotPermitted);
  OK(cudaEventElapsedTime(&milliseconds, start, end));
  CHECK_THAT(milliseconds > 0);
  OK(cudaEventRecord(untimed, first));
  FAILS(cudaEventElapsedTime(&milliseconds, start, untimed), cudaErrorInvalidResourceHandle);
  OK(cudaEventDestroy(start));
  OK(cudaEventDestroy(end));
  OK(cudaEventDestroy(untimed));
  FAILS(cudaEventQuery(untimed), cudaErrorInvalidResourceHandle);
  OK(cudaStreamDestroy(first));
  OK(cudaStreamDestroy(second));
  FAILS(cudaStreamSynchronize(first), cudaErrorInvalidResourceHandle);
}

static void pools(void) {
  cudaMemPool_t pool;
  void *memory;
  uint64_t used = 0, all = UINT64_MAX;
  struct cudaMemAccessDesc access = {{cudaMemLocationTypeDevice, 1}, cudaMemAccessFlagsProtReadWrite};
  OK(cudaDeviceGetDefaultMemPool(&pool, 0));
  OK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &all));
  OK(cudaMemPoolSetAccess(pool, &access, 1));
  OK(cudaMallocAsync(&memory, 4 * MIB, stream));
  OK(cudaMemsetAsync(memory, 1, 4 * MIB, stream));
  OK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used));
  CHECK_THAT(used == 4 * MIB);
  OK(cudaFreeAsync(memory, stream));
  OK(cudaStreamSynchronize(stream));
  OK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used));
  CHECK_THAT(used == 0);
  OK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &used));
  CHECK_THAT(used == 4 * MIB);
  OK(cudaMemPoolTrimTo(pool, 0));
  OK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &used));
  CHECK_THAT(used == 0);
  FAILS(cudaFreeAsync(memory, stream), cudaErrorInvalidValue);
  FAILS(cudaDeviceGetDefaultMemPool(&pool, 2), cudaErrorInvalidDevice);
}

int main(void) {
  OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  allocation();
  pointers();
  kinds();
  waiting();
  rows();
  streams();
  pools();
  return 0;
}
