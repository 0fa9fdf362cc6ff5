/* What the C tests of the emulated GPU's runtime share: checks, a device library with kernels of the driver's, and work that
 * waits until it is released. */
#ifndef RUNTIMETEST_H
#define RUNTIMETEST_H
#include "tests/check.h"
#include "runtime/runtime.h"
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#define MIB ((size_t)1 << 20)
#define IS(call, wanted)                                                                                    \
  do {                                                                                                      \
    cudaError_t got_ = (call);                                                                              \
    if (got_ != (wanted)) {                                                                                 \
      fprintf(stderr, "%s:%d: %s gave %d, not %d\n", __FILE__, __LINE__, #call, (int)got_, (int)(wanted));  \
      exit(1);                                                                                              \
    }                                                                                                       \
  } while (0)
#define OK(call) IS(call, cudaSuccess)
/* An error that is remembered, and forgotten when it has been asked for. */
#define FAILS(call, wanted)                  \
  do {                                       \
    IS(call, wanted);                        \
    IS(cudaPeekAtLastError(), wanted);       \
    IS(cudaGetLastError(), wanted);          \
    IS(cudaGetLastError(), cudaSuccess);     \
  } while (0)

extern unsigned long stub_calls(const char *name);
static inline unsigned long calls(const char *name) { return stub_calls(name); }

/* What nvcc makes of a library: shadows of its kernels and variables, and calls that register them. */
struct wrapper { int magic, version; const void *code; void *more; };
static struct wrapper device_code = {0x466243b1, 1, "stub", NULL};
static const char fill_u32[1], mix_u64[1], absent[1];
static char table[1];
enum { TABLE_BYTES = 64 };

static inline void **register_library(void) {
  void **handle = __cudaRegisterFatBinary(&device_code);
  __cudaRegisterFunction(handle, fill_u32, NULL, "fill_u32", -1, NULL, NULL, NULL, NULL, NULL);
  __cudaRegisterFunction(handle, mix_u64, NULL, "mix_u64", -1, NULL, NULL, NULL, NULL, NULL);
  __cudaRegisterFunction(handle, absent, NULL, "absent", -1, NULL, NULL, NULL, NULL, NULL);
  __cudaRegisterVar(handle, table, NULL, "table", 0, TABLE_BYTES, 1, 0);
  __cudaRegisterFatBinaryEnd(handle);
  return handle;
}

static const dim3 one = {1, 1, 1};
static inline cudaError_t fill(void *memory, uint32_t value, uint64_t count, cudaStream_t stream) {
  return cudaLaunchKernel(fill_u32, one, one, (void *[]){&memory, &value, &count}, 0, stream);
}
static inline void *take(size_t bytes) {
  void *memory;
  OK(cudaMalloc(&memory, bytes));
  return memory;
}
#define OLD_WORD 0xa5a5a5a5u /* of memory that nobody has written */
static inline uint32_t word_at(const void *memory) {
  uint32_t value;
  OK(cudaMemcpy(&value, memory, sizeof value, cudaMemcpyDeviceToHost));
  return value;
}

/* A stream waits here until somebody releases it. */
static volatile int held;
static void wait_here(void *argument) {
  (void)argument;
  while (__atomic_load_n(&held, __ATOMIC_ACQUIRE)) usleep(100);
}
static inline void hold(cudaStream_t stream) {
  __atomic_store_n(&held, 1, __ATOMIC_RELEASE);
  OK(cudaLaunchHostFunc(stream, wait_here, NULL));
}
static inline void release(void) { __atomic_store_n(&held, 0, __ATOMIC_RELEASE); }

static inline void in_thread(void *(*run)(void *)) {
  pthread_t thread;
  CHECK_THAT(!pthread_create(&thread, NULL, run, NULL));
  CHECK_THAT(!pthread_join(thread, NULL));
}
#endif
