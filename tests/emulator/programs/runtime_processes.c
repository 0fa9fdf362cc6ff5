/* Forked children, and memory of another process. */
#include "runtimetest.h"

static void expect(pid_t child) {
  int status;
  CHECK_THAT(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* A child of a process that has not called the driver uses the device like any other; here it opens its parent's memory. */
struct handles { cudaIpcMemHandle_t memory; cudaIpcEventHandle_t event; };
static pid_t opener(int from, int to) {
  pid_t child = fork();
  CHECK_THAT(child >= 0);
  if (child) return child;
  struct handles handle;
  uint32_t *memory;
  cudaEvent_t event;
  CHECK_THAT(read(from, &handle, sizeof handle) == sizeof handle);
  OK(cudaIpcOpenMemHandle((void **)&memory, handle.memory, 1));
  OK(cudaIpcOpenEventHandle(&event, handle.event));
  OK(cudaStreamWaitEvent(NULL, event, 0));
  OK(cudaEventDestroy(event));
  CHECK_THAT(word_at(memory) == 11);
  OK(fill(memory, 12, 1, NULL));
  OK(cudaDeviceSynchronize());
  OK(cudaIpcCloseMemHandle(memory));
  FAILS(cudaIpcCloseMemHandle(memory), cudaErrorInvalidValue);
  CHECK_THAT(write(to, "x", 1) == 1);
  exit(0);
}

static void shared_memory(void) {
  int there[2], back[2];
  char answer;
  struct handles handle;
  cudaEvent_t event, own;
  CHECK_THAT(!pipe(there) && !pipe(back));
  pid_t child = opener(there[0], back[1]);
  uint32_t *memory = take(MIB);
  OK(cudaEventCreateWithFlags(&own, cudaEventDisableTiming));
  OK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventInterprocess));
  OK(fill(memory, 11, 1, NULL));
  OK(cudaEventRecord(event, NULL));
  OK(cudaIpcGetMemHandle(&handle.memory, memory));
  OK(cudaIpcGetEventHandle(&handle.event, event));
  FAILS(cudaIpcGetMemHandle(&handle.memory, &handle), cudaErrorInvalidValue);
  FAILS(cudaIpcGetEventHandle(&handle.event, own), cudaErrorInvalidResourceHandle);
  CHECK_THAT(write(there[1], &handle, sizeof handle) == sizeof handle && read(back[0], &answer, 1) == 1);
  CHECK_THAT(word_at(memory) == 12);
  expect(child);
  OK(cudaFree(memory));
}

static bool busy = true;
static void *works(void *argument) {
  char shadow[64];
  void **handle = __cudaRegisterFatBinary(&device_code);
  while (__atomic_load_n(&busy, __ATOMIC_RELAXED)) {
    OK(cudaFree(take(MIB)));
    __cudaRegisterFunction(handle, shadow, NULL, "fill_u32", -1, NULL, NULL, NULL, NULL, NULL);
  }
  __cudaUnregisterFatBinary(handle);
  return argument;
}

/* A child of a process that has called it gets an error from every call, whatever other threads were doing. */
static void inherits(void) {
  int device = 0;
  void *memory;
  cudaStream_t stream;
  OK(cudaGetLastError());
  FAILS(cudaGetDeviceCount(&device), cudaErrorInitializationError);
  FAILS(cudaGetDevice(&device), cudaErrorInitializationError);
  FAILS(cudaSetDevice(0), cudaErrorInitializationError);
  FAILS(cudaMalloc(&memory, MIB), cudaErrorInitializationError);
  FAILS(cudaStreamCreate(&stream), cudaErrorInitializationError);
  FAILS(cudaDeviceSynchronize(), cudaErrorInitializationError);
  FAILS(fill(memory, 1, 1, NULL), cudaErrorInitializationError);
  CHECK_THAT(!strcmp(cudaGetErrorString(cudaErrorInitializationError), "initialization error"));
  register_library();
  exit(0);
}
static void forked(void) {
  pthread_t thread;
  CHECK_THAT(!pthread_create(&thread, NULL, works, NULL));
  for (int i = 0; i < 20; i++) {
    pid_t child = fork();
    CHECK_THAT(child >= 0);
    if (!child) inherits();
    expect(child);
  }
  __atomic_store_n(&busy, false, __ATOMIC_RELAXED);
  CHECK_THAT(!pthread_join(thread, NULL));
}

int main(void) {
  register_library();
  shared_memory();
  forked();
  return 0;
}
