/* The kernels that compute something: those of the module whose image is the text "stub".  It holds all of these:
 *
 *   fill_u32(u64 out, u32 value, u64 count)    add_u32(u64 out, u64 a, u64 b, u64 count)
 *   mix_u64(u64 data, u64 count, u64 seed)     each value depends on itself, its place and the seed; runs do not commute
 *   copy(u64 out, u64 in, u64 bytes)           spin_us(u64 microseconds): takes that long
 *   count_for_ever(u64 word): adds to it until its process ends
 *   nop(): its launch returns at once and submits nothing, for measuring what a launch costs in front of the driver
 *
 * An address that the device cannot reach breaks the context with error 700. */
#include "kernel.h"
#include "null_work.h"
#include <time.h>
#include <unistd.h>

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

static CUresult count_for_ever(const uint64_t *p) {
  if (!stub_reaches(p[0], 4, true)) return CUDA_ERROR_ILLEGAL_ADDRESS;
  for (;;) __atomic_add_fetch((uint32_t *)p[0], 1, __ATOMIC_RELAXED), usleep(20);
}

static const struct stub_kernel kernels[] = {
  {"nop", NULL, {0}},           {"fill_u32", fill_u32, {8, 4, 8}}, {"add_u32", add_u32, {8, 8, 8, 8}},
  {"mix_u64", mix_u64, {8, 8, 8}}, {"copy", copy, {8, 8, 8}},      {"spin_us", spin_us, {8}},
  {"count_for_ever", count_for_ever, {8}},
};
enum { KERNELS = sizeof kernels / sizeof *kernels };

const struct stub_kernel *stub_kernel_named(const char *name) {
  for (int i = 0; i < KERNELS; i++)
    if (!strcmp(name, kernels[i].name)) return &kernels[i];
  return NULL;
}

struct call { const struct stub_kernel *kernel; uint64_t params[STUB_PARAMS]; };
static CUresult run(void *payload) {
  struct call *call = payload;
  return call->kernel->run ? call->kernel->run(call->params) : CUDA_SUCCESS;
}

/* Parameters come as pointers, or packed in a buffer, each at a multiple of its size. */
static CUresult collect(const struct stub_kernel *kernel, void **params, void **extra, uint64_t values[STUB_PARAMS]) {
  const unsigned char *buffer = NULL;
  for (; extra && *extra != CU_LAUNCH_PARAM_END; extra += 2)
    if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER) buffer = extra[1];
  size_t offset = 0;
  for (int i = 0; i < STUB_PARAMS && kernel->sizes[i]; i++) {
    size_t size = kernel->sizes[i];
    offset = stub_round(offset, size);
    if (!params && !buffer) return CUDA_ERROR_INVALID_VALUE;
    memcpy(&values[i], params ? params[i] : buffer + offset, size);
    offset += size;
  }
  return CUDA_SUCCESS;
}

struct stub_op *stub_kernel_op(CUfunction function, void **params, void **extra, CUresult *result) {
  *result = function ? stub_module_load(function->module) : CUDA_ERROR_INVALID_HANDLE;
  if (*result) return NULL;
  if (!function->kernel) return emulator_null_work(function->name), stub_null_op();
  struct call call = {.kernel = function->kernel};
  *result = collect(function->kernel, params, extra, call.params);
  return *result ? NULL : stub_op(CU_GRAPH_NODE_TYPE_KERNEL, run, &call, sizeof call);
}

bool stub_is_nop(CUfunction function) { return function && function->kernel == &kernels[0]; }
