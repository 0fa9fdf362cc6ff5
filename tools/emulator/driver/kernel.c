/* The kernels that compute something: those of the module whose image is the text "stub".  It holds all of these:
 *
 *   fill_u32(u64 out, u32 value, u64 count)    add_u32(u64 out, u64 a, u64 b, u64 count)
 *   mix_u64(u64 data, u64 count, u64 seed)     each value depends on itself, its place and the seed; runs do not commute
 *   copy(u64 out, u64 in, u64 bytes)           spin_us(u64 microseconds): takes that long
 *   count_for_ever(u64 word): adds to it until its process ends
 *   nop(): its launch returns at once and submits nothing, for measuring what a launch costs in front of the driver
 *
 * Kernels of Carpool's own are computed in every module, whatever its image says:
 *
 *   carpool_find_zeros(u64 data, u64 marks, u32 vectors, u32 blocks): marks blocks of so many vectors of 16 bytes
 *
 * An address that the device cannot reach breaks the context with error 700. */
#include "kernel.h"
#include "null_work.h"
#include <time.h>
#include <unistd.h>

static struct stub_access written(uint64_t at) { return (struct stub_access){(void *)at, .write = true}; }
static struct stub_access read_(uint64_t at) { return (struct stub_access){(void *)at, .write = false}; }

static void fill_piece(void *params, size_t at, size_t bytes) {
  const uint64_t *p = params;
  for (uint64_t i = at / 4; i < (at + bytes) / 4; i++) ((uint32_t *)p[0])[i] = (uint32_t)p[1];
}
static CUresult fill_u32(uint64_t *p) {
  struct stub_access place = written(p[0]);
  return stub_by_pieces(&place, 1, p[2] * 4, fill_piece, p);
}
static void add_piece(void *params, size_t at, size_t bytes) {
  const uint64_t *p = params;
  for (uint64_t i = at / 4; i < (at + bytes) / 4; i++)
    ((uint32_t *)p[0])[i] = ((uint32_t *)p[1])[i] + ((uint32_t *)p[2])[i];
}
static CUresult add_u32(uint64_t *p) {
  struct stub_access places[] = {written(p[0]), read_(p[1]), read_(p[2])};
  return stub_by_pieces(places, 3, p[3] * 4, add_piece, p);
}
static void mix_piece(void *params, size_t at, size_t bytes) {
  const uint64_t *p = params;
  uint64_t *data = (uint64_t *)p[0];
  for (uint64_t i = at / 8; i < (at + bytes) / 8; i++) {
    uint64_t x = (data[i] ^ p[2]) * 0x9e3779b97f4a7c15u + i;
    data[i] = x ^ x >> 29;
  }
}
static CUresult mix_u64(uint64_t *p) {
  struct stub_access place = written(p[0]);
  return stub_by_pieces(&place, 1, p[1] * 8, mix_piece, p);
}
static void copy_piece(void *params, size_t at, size_t bytes) {
  const uint64_t *p = params;
  memmove((char *)p[0] + at, (char *)p[1] + at, bytes);
}
static CUresult copy(uint64_t *p) {
  struct stub_access places[] = {written(p[0]), read_(p[1])};
  return stub_by_pieces(places, 2, p[2], copy_piece, p);
}
static CUresult spin_us(uint64_t *p) {
  enum { SLEEP_ERROR_NS = 200000 };
  uint64_t end = stub_now_ns() + p[0] * 1000, rest = end - SLEEP_ERROR_NS;
  struct timespec until = {.tv_sec = (time_t)(rest / 1000000000u), .tv_nsec = (long)(rest % 1000000000u)};
  while (stub_now_ns() < rest && clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL)) continue;
  while (stub_now_ns() < end) continue;
  return CUDA_SUCCESS;
}

/* Block by block: what is mapped may change meanwhile. */
static CUresult find_zeros(uint64_t *p) {
  size_t bytes = p[2] * 16;
  for (uint64_t i = 0; i < p[3]; i++) {
    const char *at = (const char *)p[0] + i * bytes;
    stub_ranges_lock();
    bool reaches = stub_reaches((CUdeviceptr)at, bytes, false);
    if (reaches) ((uint32_t *)p[1])[i] = *at || memcmp(at, at + 1, bytes - 1) ? 2 : 1;
    stub_ranges_unlock();
    if (!reaches) return CUDA_ERROR_ILLEGAL_ADDRESS;
  }
  return CUDA_SUCCESS;
}

static CUresult count_for_ever(uint64_t *p) {
  if (!stub_reaches(p[0], 4, true)) return CUDA_ERROR_ILLEGAL_ADDRESS;
  for (;;) __atomic_add_fetch((uint32_t *)p[0], 1, __ATOMIC_RELAXED), usleep(20);
}

static const struct stub_kernel kernels[] = {
  {"nop", NULL, {0}},           {"fill_u32", fill_u32, {8, 4, 8}}, {"add_u32", add_u32, {8, 8, 8, 8}},
  {"mix_u64", mix_u64, {8, 8, 8}}, {"copy", copy, {8, 8, 8}},      {"spin_us", spin_us, {8}},
  {"count_for_ever", count_for_ever, {8}},
  {"carpool_find_zeros", find_zeros, {8, 8, 4, 4}},
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
