/* Streams and events: order, what waits for what, and that nothing else waits. */
#include "stubtest.h"

static uint32_t *word; /* pinned; kernels and streams wait for it */

static CUresult hold(CUstream stream) { return cuStreamWaitValue32_v2(stream, (CUdeviceptr)word, 1, CU_STREAM_WAIT_VALUE_EQ); }
static void release(void) { __atomic_store_n(word, 1, __ATOMIC_RELEASE); }
static void again(void) { __atomic_store_n(word, 0, __ATOMIC_RELEASE); }

static void order(void) {
  CUstream stream;
  CUdeviceptr data = take(MIB);
  uint64_t forward[4] = {0}, backward[4] = {0};
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  OK(cuMemsetD8Async(data, 0, 32, stream));
  for (uint64_t seed = 1; seed < 50; seed++) OK(mix(stream, data, 4, seed));
  OK(cuStreamSynchronize(stream));
  OK(cuMemcpyDtoH_v2(forward, data, 32));
  OK(cuMemsetD8Async(data, 0, 32, stream));
  for (uint64_t seed = 49; seed; seed--) OK(mix(stream, data, 4, seed));
  OK(cuStreamSynchronize(stream));
  OK(cuMemcpyDtoH_v2(backward, data, 32));
  CHECK_THAT(forward[0] && memcmp(forward, backward, 32));
  OK(cuMemFree_v2(data));
  OK(cuStreamDestroy_v2(stream));
  IS(cuStreamSynchronize(stream), CUDA_ERROR_INVALID_HANDLE);
}

static void asynchronous(void) {
  CUstream held, free_one;
  CUevent event;
  OK(cuStreamCreate(&held, CU_STREAM_NON_BLOCKING));
  OK(cuStreamCreate(&free_one, CU_STREAM_NON_BLOCKING));
  OK(cuEventCreate(&event, 0));
  OK(cuEventQuery(event)); /* never recorded */
  OK(hold(held));
  OK(cuEventRecord(event, held));
  IS(cuStreamQuery(held), CUDA_ERROR_NOT_READY);
  IS(cuEventQuery(event), CUDA_ERROR_NOT_READY);
  OK(spin(free_one, 10));
  OK(cuStreamSynchronize(free_one)); /* independent of the held one */
  OK(cuStreamWaitEvent(free_one, event, 0));
  IS(cuStreamQuery(free_one), CUDA_ERROR_NOT_READY);
  release();
  OK(cuStreamSynchronize(free_one));
  OK(cuEventQuery(event));
  OK(cuStreamQuery(held));
  again();
  OK(cuEventDestroy_v2(event));
  IS(cuEventQuery(event), CUDA_ERROR_INVALID_HANDLE);
  OK(cuStreamDestroy_v2(held));
  OK(cuStreamDestroy_v2(free_one));
}

/* Of more than a queue holds: the call that is too many waits for the device. */
static void *launch_many(void *stream) {
  OK(cuCtxSetCurrent(context));
  for (int i = 0; i < 5000; i++) OK(spin(stream, 0));
  return NULL;
}
static void full_queue(void) {
  CUstream stream;
  pthread_t thread;
  unsigned long before = stub_calls("cuLaunchKernel");
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  OK(hold(stream));
  CHECK_THAT(!pthread_create(&thread, NULL, launch_many, stream));
  while (stub_calls("cuLaunchKernel") < before + 1024) usleep(100);
  usleep(20000);
  CHECK_THAT(stub_calls("cuLaunchKernel") == before + 1024); /* 1023 stand behind the one that waits */
  release();
  CHECK_THAT(!pthread_join(thread, NULL));
  OK(cuStreamSynchronize(stream));
  CHECK_THAT(stub_calls("cuLaunchKernel") == before + 5000);
  again();
  OK(cuStreamDestroy_v2(stream));
}

/* The default stream waits for blocking streams and they for it; a non-blocking one takes no part. */
static void default_stream(void) {
  CUstream blocking, apart;
  OK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
  OK(cuStreamCreate(&apart, CU_STREAM_NON_BLOCKING));
  OK(hold(blocking));
  OK(spin(NULL, 1));
  IS(cuStreamQuery(NULL), CUDA_ERROR_NOT_READY);
  IS(cuStreamQuery(CU_STREAM_LEGACY), CUDA_ERROR_NOT_READY);
  OK(spin(apart, 1));
  OK(cuStreamSynchronize(apart));
  release();
  OK(cuStreamSynchronize(NULL));
  again();
  OK(hold(NULL));
  OK(spin(blocking, 1));
  IS(cuStreamQuery(blocking), CUDA_ERROR_NOT_READY);
  release();
  OK(cuStreamSynchronize(blocking));
  again();
  OK(hold(apart));
  OK(cuStreamSynchronize(NULL)); /* would never end if it waited for `apart` */
  release();
  OK(cuCtxSynchronize());
  again();
  OK(cuStreamDestroy_v2(blocking));
  OK(cuStreamDestroy_v2(apart));
}

static void *own_stream(void *result) {
  OK(cuCtxSetCurrent(context));
  OK(cuStreamGetId_ptsz(NULL, result));
  return NULL;
}
static void per_thread(void) {
  unsigned long long mine, again_mine, other, legacy;
  pthread_t thread;
  OK(cuStreamGetId_ptsz(NULL, &mine));
  OK(cuStreamGetId(CU_STREAM_PER_THREAD, &again_mine));
  OK(cuStreamGetId(NULL, &legacy));
  CHECK_THAT(!pthread_create(&thread, NULL, own_stream, &other) && !pthread_join(thread, NULL));
  CHECK_THAT(mine == again_mine && mine != other && mine != legacy);
}

static void set(void *argument) { __atomic_store_n((uint32_t *)argument, 1, __ATOMIC_RELEASE); }
static void call_back(void *argument) { *(CUresult *)argument = cuCtxSynchronize(); }
static void host_functions(void) {
  CUstream a, b;
  CUresult inside = CUDA_SUCCESS;
  OK(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
  OK(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
  OK(hold(a));
  OK(cuLaunchHostFunc(b, set, word)); /* lets the other one go */
  OK(cuStreamSynchronize(a));
  again();
  OK(cuLaunchHostFunc(a, call_back, &inside));
  OK(cuStreamSynchronize(a));
  CHECK_THAT(inside == CUDA_ERROR_NOT_PERMITTED);
  OK(cuStreamWriteValue32_v2(b, (CUdeviceptr)word, 9, 0));
  OK(cuStreamSynchronize(b));
  CHECK_THAT(*word == 9);
  again();
  OK(cuStreamDestroy_v2(a));
  OK(cuStreamDestroy_v2(b));
}

static void waits_until(unsigned condition, uint32_t value, uint32_t too_little, uint32_t enough) {
  CUstream stream;
  CUstreamBatchMemOpParams ops[2] = {{.waitValue = {.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32, .address = (CUdeviceptr)word,
                                                    .value = value, .flags = condition}},
                                     {.writeValue = {.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64,
                                                     .address = (CUdeviceptr)(word + 2), .value64 = 1ull << 40}}};
  *(uint64_t *)(word + 2) = 0;
  __atomic_store_n(word, too_little, __ATOMIC_RELEASE);
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  OK(cuStreamBatchMemOp_v2(stream, 2, ops, 0));
  IS(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
  __atomic_store_n(word, enough, __ATOMIC_RELEASE);
  OK(cuStreamSynchronize(stream));
  CHECK_THAT(*(uint64_t *)(word + 2) == 1ull << 40);
  OK(cuStreamDestroy_v2(stream));
  again();
}
static void memory_operations(void) {
  waits_until(CU_STREAM_WAIT_VALUE_GEQ, 5, 4, 6);
  waits_until(CU_STREAM_WAIT_VALUE_GEQ, 0xfffffff0u, 0xffffffe0u, 3); /* wraps */
  waits_until(CU_STREAM_WAIT_VALUE_EQ, 5, 6, 5);
  waits_until(CU_STREAM_WAIT_VALUE_AND, 6, 1, 4);
  waits_until(CU_STREAM_WAIT_VALUE_NOR, 1, 0xfffffffeu, 2);
  IS(cuStreamWaitValue32_v2(NULL, (CUdeviceptr)word + 2, 1, 0), CUDA_ERROR_INVALID_VALUE); /* not aligned */
  IS(cuStreamWaitValue32_v2(NULL, (CUdeviceptr)&context, 1, 0), CUDA_ERROR_INVALID_VALUE); /* pageable */
}

/* Asynchronous copies wait for pageable memory only: on the way to the host.  Otherwise what is copied is what was there. */
static void copies(void) {
  CUstream stream;
  CUdeviceptr data = take(MIB);
  uint32_t pageable = 5, back = 0, *pinned;
  OK(cuMemHostAlloc((void **)&pinned, 4096, 0));
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  OK(hold(stream));
  OK(cuMemcpyHtoDAsync_v2(data, &pageable, 4, stream));
  pageable = 6; /* too late to matter */
  *pinned = 0;
  OK(cuMemcpyDtoHAsync_v2(pinned, data, 4, stream));
  IS(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
  CHECK_THAT(*pinned == 0);
  release();
  OK(cuMemcpyDtoHAsync_v2(&back, data, 4, stream));
  CHECK_THAT(back == 5 && *pinned == 5);
  again();
  OK(cuMemFreeHost(pinned));
  OK(cuMemFree_v2(data));
  OK(cuStreamDestroy_v2(stream));
}

static void *synchronous_copy(void *argument) {
  uint32_t *back = word + 16; /* pinned: an asynchronous copy to it would return too early */
  *back = 0;
  OK(cuCtxSetCurrent(context));
  OK(cuMemcpyDtoH_v2(back, *(CUdeviceptr *)argument, 4));
  return (void *)(uintptr_t)*back;
}
static void synchronous(void) {
  CUstream stream;
  CUdeviceptr data = take(MIB);
  pthread_t thread;
  void *back;
  OK(cuStreamCreate(&stream, CU_STREAM_DEFAULT));
  OK(hold(stream));
  OK(fill(stream, data, 4242, 1));
  unsigned long before = stub_calls("cuMemcpyDtoH");
  CHECK_THAT(!pthread_create(&thread, NULL, synchronous_copy, &data));
  while (stub_calls("cuMemcpyDtoH") == before) continue;
  release();
  CHECK_THAT(!pthread_join(thread, &back) && (uintptr_t)back == 4242);
  again();
  OK(cuMemFree_v2(data));
  OK(cuStreamDestroy_v2(stream));
}

static void timing(void) {
  CUevent start, end, untimed;
  float ms;
  OK(cuEventCreate(&start, 0));
  OK(cuEventCreate(&end, 0));
  OK(cuEventCreate(&untimed, CU_EVENT_DISABLE_TIMING));
  OK(cuEventRecord(start, NULL));
  OK(spin(NULL, 5000));
  OK(cuEventRecord(end, NULL));
  OK(cuEventSynchronize(end));
  OK(cuEventElapsedTime(&ms, start, end));
  CHECK_THAT(ms >= 5);
  OK(cuEventRecord(untimed, NULL));
  IS(cuEventElapsedTime(&ms, start, untimed), CUDA_ERROR_INVALID_HANDLE);
  OK(cuEventDestroy_v2(start));
  OK(cuEventDestroy_v2(end));
  OK(cuEventDestroy_v2(untimed));
}

int main(void) {
  begin();
  OK(cuMemHostAlloc((void **)&word, 4096, 0));
  order();
  asynchronous();
  full_queue();
  default_stream();
  per_thread();
  host_functions();
  copies();
  synchronous();
  timing();
  memory_operations();
  return 0;
}
