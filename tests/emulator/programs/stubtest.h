/* What the C tests of the stub driver share: every test has a current context and the module. */
#ifndef STUBTEST_H
#define STUBTEST_H
#include "tests/check.h"
#include "cuda/driver/driver.h"
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>
#define MIB ((size_t)1 << 20)
#define IS(call, wanted)                                                                                    \
  do {                                                                                                      \
    CUresult got_ = (call);                                                                                 \
    if (got_ != (wanted)) {                                                                                 \
      fprintf(stderr, "%s:%d: %s gave %d, not %d\n", __FILE__, __LINE__, #call, (int)got_, (int)(wanted));  \
      exit(1);                                                                                              \
    }                                                                                                       \
  } while (0)
#define OK(call) IS(call, CUDA_SUCCESS)

extern unsigned long stub_calls(const char *name);
extern unsigned long stub_pinned_bytes(void);
static CUcontext context;
static CUmodule module;

static inline CUfunction function(const char *name) {
  CUfunction found;
  OK(cuModuleGetFunction(&found, module, name));
  return found;
}
static inline CUresult launch(const char *name, CUstream stream, void **params) {
  return cuLaunchKernel(function(name), 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
}
static inline CUresult spin(CUstream stream, uint64_t us) { return launch("spin_us", stream, (void *[]){&us}); }
static inline CUresult mix(CUstream stream, CUdeviceptr data, uint64_t count, uint64_t seed) {
  return launch("mix_u64", stream, (void *[]){&data, &count, &seed});
}
static inline CUresult fill(CUstream stream, CUdeviceptr data, uint32_t value, uint64_t count) {
  return launch("fill_u32", stream, (void *[]){&data, &value, &count});
}
static inline void begin(void) {
  OK(cuInit(0));
  OK(cuDevicePrimaryCtxRetain(&context, 0));
  OK(cuCtxSetCurrent(context));
  OK(cuModuleLoadData(&module, "stub"));
}
static inline size_t free_bytes(void) {
  size_t free_now, total;
  OK(cuMemGetInfo_v2(&free_now, &total));
  return free_now;
}
static inline CUdeviceptr take(size_t bytes) {
  CUdeviceptr address;
  OK(cuMemAlloc_v2(&address, bytes));
  return address;
}
#endif
