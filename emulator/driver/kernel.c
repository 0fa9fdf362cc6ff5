/* Modules and kernels.  Every module is the text "stub" and holds all of these:
 *
 *   fill_u32(u64 out, u32 value, u64 count)    add_u32(u64 out, u64 a, u64 b, u64 count)
 *   mix_u64(u64 data, u64 count, u64 seed)     each value depends on itself, its place and the seed; runs do not commute
 *   copy(u64 out, u64 in, u64 bytes)           spin_us(u64 microseconds): takes that long
 *   nop(): its launch returns at once and submits nothing, for measuring what a launch costs in front of the driver
 *
 * An address that the device cannot reach breaks the context with error 700. */
#include "stub.h"
#include <time.h>

enum { PARAMS = 4 };
struct kernel {
  const char *name;
  CUresult (*run)(const uint64_t *p);
  unsigned char sizes[PARAMS];
};

static CUresult fill_u32(const uint64_t *p) {
  if (!stub_reaches(p[0], p[2] * 4, true)) return CUDA_ERROR_ILLEGAL_ADDRESS;
  for (uint64_t i = 0; i < p[2]; i++) ((uint32_t *)p[0])[i] = (uint32_t)p[1];
  return CUDA_SUCCESS;
}
static CUresult add_u32(const uint64_t *p) {
  size_t bytes = p[3] * 4;
  if (!stub_reaches(p[0], bytes, true) || !stub_reaches(p[1], bytes, false) || !stub_reaches(p[2], bytes, false))
    return CUDA_ERROR_ILLEGAL_ADDRESS;
  for (uint64_t i = 0; i < p[3]; i++) ((uint32_t *)p[0])[i] = ((uint32_t *)p[1])[i] + ((uint32_t *)p[2])[i];
  return CUDA_SUCCESS;
}
static CUresult mix_u64(const uint64_t *p) {
  if (!stub_reaches(p[0], p[1] * 8, true)) return CUDA_ERROR_ILLEGAL_ADDRESS;
  uint64_t *data = (uint64_t *)p[0];
  for (uint64_t i = 0; i < p[1]; i++) {
    uint64_t x = (data[i] ^ p[2]) * 0x9e3779b97f4a7c15u + i;
    data[i] = x ^ x >> 29;
  }
  return CUDA_SUCCESS;
}
static CUresult copy(const uint64_t *p) {
  if (!stub_reaches(p[0], p[2], true) || !stub_reaches(p[1], p[2], false)) return CUDA_ERROR_ILLEGAL_ADDRESS;
  memmove((void *)p[0], (void *)p[1], p[2]);
  return CUDA_SUCCESS;
}
static CUresult spin_us(const uint64_t *p) {
  enum { SLEEP_ERROR_NS = 200000 };
  uint64_t end = stub_now_ns() + p[0] * 1000, rest = end - SLEEP_ERROR_NS;
  struct timespec until = {.tv_sec = (time_t)(rest / 1000000000u), .tv_nsec = (long)(rest % 1000000000u)};
  while (stub_now_ns() < rest && clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL)) continue;
  while (stub_now_ns() < end) continue;
  return CUDA_SUCCESS;
}

static const struct kernel kernels[] = {
  {"nop", NULL, {0}},           {"fill_u32", fill_u32, {8, 4, 8}}, {"add_u32", add_u32, {8, 8, 8, 8}},
  {"mix_u64", mix_u64, {8, 8, 8}}, {"copy", copy, {8, 8, 8}},      {"spin_us", spin_us, {8}},
};
enum { KERNELS = sizeof kernels / sizeof *kernels };

struct CUfunc_st { const struct kernel *kernel; CUmodule module; };
struct CUmod_st { struct CUfunc_st function[KERNELS]; };

static CUresult load(void **module, const void *image) {
  CUcontext context;
  CUresult result = stub_current(&context);
  if (!result) result = stub_unsafe();
  if (result) return result;
  if (!module || !image) return CUDA_ERROR_INVALID_VALUE;
  if (strncmp(image, "stub", 4)) return CUDA_ERROR_INVALID_IMAGE;
  CUmodule made = malloc(sizeof *made);
  for (int i = 0; i < KERNELS; i++) made->function[i] = (struct CUfunc_st){&kernels[i], made};
  *module = made;
  return CUDA_SUCCESS;
}
static CUresult find(void **function, CUmodule module, const char *name) {
  if (!function || !module || !name) return CUDA_ERROR_INVALID_VALUE;
  for (int i = 0; i < KERNELS; i++)
    if (!strcmp(name, kernels[i].name)) return *function = &module->function[i], CUDA_SUCCESS;
  return CUDA_ERROR_NOT_FOUND;
}

CUresult cuModuleLoadData(CUmodule *module, const void *image) {
  ENTER(cuModuleLoadData);
  return load((void **)module, image);
}
FORWARD(cuModuleLoadFatBinary, cuModuleLoadData, (module, image), CUmodule *module, const void *image)
CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int count, CUjit_option *options, void **values) {
  ENTER(cuModuleLoadDataEx);
  (void)count, (void)options, (void)values;
  return load((void **)module, image);
}
CUresult cuModuleLoad(CUmodule *module, const char *path) {
  ENTER(cuModuleLoad);
  (void)module, (void)path;
  return CUDA_ERROR_FILE_NOT_FOUND;
}
CUresult cuModuleUnload(CUmodule module) {
  ENTER(cuModuleUnload);
  CUcontext context;
  CUresult result = stub_current(&context);
  if (result) return result;
  stub_context_drain(context);
  free(module);
  return CUDA_SUCCESS;
}
CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode *mode) {
  ENTER(cuModuleGetLoadingMode);
  *mode = CU_MODULE_LAZY_LOADING;
  return CUDA_SUCCESS;
}
CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
  ENTER(cuModuleGetFunction);
  return find((void **)function, module, name);
}
CUresult cuModuleGetGlobal_v2(CUdeviceptr *address, size_t *bytes, CUmodule module, const char *name) {
  ENTER(cuModuleGetGlobal_v2);
  (void)address, (void)bytes, (void)module, (void)name;
  return CUDA_ERROR_NOT_FOUND;
}

/* A library is its module and a kernel its function. */
CUresult cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *jit, void **jit_values, unsigned int jit_count,
                           CUlibraryOption *options, void **values, unsigned int count) {
  ENTER(cuLibraryLoadData);
  (void)jit, (void)jit_values, (void)jit_count, (void)options, (void)values, (void)count;
  return load((void **)library, code);
}
CUresult cuLibraryUnload(CUlibrary library) {
  ENTER(cuLibraryUnload);
  free(library);
  return CUDA_SUCCESS;
}
CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name) {
  ENTER(cuLibraryGetKernel);
  return find((void **)kernel, (CUmodule)library, name);
}
CUresult cuLibraryGetModule(CUmodule *module, CUlibrary library) {
  ENTER(cuLibraryGetModule);
  *module = (CUmodule)library;
  return CUDA_SUCCESS;
}
CUresult cuKernelGetFunction(CUfunction *function, CUkernel kernel) {
  ENTER(cuKernelGetFunction);
  *function = (CUfunction)kernel;
  return CUDA_SUCCESS;
}
CUresult cuFuncGetModule(CUmodule *module, CUfunction function) {
  ENTER(cuFuncGetModule);
  *module = function->module;
  return CUDA_SUCCESS;
}
CUresult cuFuncGetName(const char **name, CUfunction function) {
  ENTER(cuFuncGetName);
  *name = function->kernel->name;
  return CUDA_SUCCESS;
}
CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction function) {
  ENTER(cuFuncGetAttribute);
  (void)function;
  *value = attribute == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? 1024 : 0;
  return CUDA_SUCCESS;
}
CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
  ENTER(cuFuncSetAttribute);
  (void)function, (void)attribute, (void)value;
  return CUDA_SUCCESS;
}
CUresult cuFuncSetCacheConfig(CUfunction function, CUfunc_cache config) {
  ENTER(cuFuncSetCacheConfig);
  (void)function, (void)config;
  return CUDA_SUCCESS;
}
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction function, int block_size, size_t shared_bytes) {
  ENTER(cuOccupancyMaxActiveBlocksPerMultiprocessor);
  (void)function, (void)block_size, (void)shared_bytes;
  *blocks = 2;
  return CUDA_SUCCESS;
}

struct call { const struct kernel *kernel; uint64_t params[PARAMS]; };
static CUresult run(void *payload) {
  struct call *call = payload;
  return call->kernel->run ? call->kernel->run(call->params) : CUDA_SUCCESS;
}

/* Parameters come as pointers, or packed in a buffer, each at a multiple of its size. */
static CUresult collect(const struct kernel *kernel, void **params, void **extra, uint64_t values[PARAMS]) {
  const unsigned char *buffer = NULL;
  for (; extra && *extra != CU_LAUNCH_PARAM_END; extra += 2)
    if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER) buffer = extra[1];
  size_t offset = 0;
  for (int i = 0; i < PARAMS && kernel->sizes[i]; i++) {
    size_t size = kernel->sizes[i];
    offset = stub_round(offset, size);
    if (!params && !buffer) return CUDA_ERROR_INVALID_VALUE;
    memcpy(&values[i], params ? params[i] : buffer + offset, size);
    offset += size;
  }
  return CUDA_SUCCESS;
}

struct stub_op *stub_kernel_op(CUfunction function, void **params, void **extra, CUresult *result) {
  struct call call = {.kernel = function ? function->kernel : NULL};
  *result = function ? collect(function->kernel, params, extra, call.params) : CUDA_ERROR_INVALID_HANDLE;
  return *result ? NULL : stub_op(CU_GRAPH_NODE_TYPE_KERNEL, run, &call, sizeof call);
}

bool stub_is_nop(CUfunction function) { return function && function->kernel == &kernels[0]; }
