/* Host memory that the device reaches, and legacy sharing of device memory between processes. */
#define _GNU_SOURCE
#include "stub.h"
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

/* Bytes of host memory that are pinned in this process, for tests. */
__attribute__((visibility("default"))) unsigned long stub_pinned_bytes(void) {
  unsigned long bytes = 0;
  stub_ranges_lock();
  for (struct stub_range *range = stub_range_first(); range; range = range->next)
    if (range->kind == STUB_HOST || range->kind == STUB_REGISTERED) bytes += range->bytes;
  stub_ranges_unlock();
  return bytes;
}

static CUresult make(void **memory, size_t bytes, unsigned flags) {
  CUcontext context;
  CUresult result = stub_current(&context);
  if (!result) result = stub_unsafe();
  if (result) return result;
  if (!memory || !bytes || flags > 7) return CUDA_ERROR_INVALID_VALUE;
  size_t span = stub_round(bytes, 4096);
  void *base = mmap(NULL, span, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (base == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  struct stub_range *range = stub_range_add(STUB_HOST, base, bytes, span, context);
  range->flags = flags | CU_MEMHOSTALLOC_DEVICEMAP;
  *memory = base;
  return CUDA_SUCCESS;
}
CUresult cuMemHostAlloc(void **memory, size_t bytes, unsigned int flags) {
  ENTER(cuMemHostAlloc);
  return make(memory, bytes, flags);
}
CUresult cuMemAllocHost_v2(void **memory, size_t bytes) {
  ENTER(cuMemAllocHost_v2);
  return make(memory, bytes, 0);
}

static CUresult forget(void *memory, enum stub_kind kind, CUresult unknown) {
  CUcontext context;
  CUresult result = stub_current(&context);
  if (!result) result = stub_unsafe();
  if (!result) result = stub_context_drain(context);
  if (result) return result;
  stub_ranges_lock();
  struct stub_range *range = stub_range_find(memory);
  bool found = range && range->base == memory && range->kind == kind;
  if (found && kind == STUB_HOST) munmap(range->base, range->span);
  if (found) stub_range_remove(range);
  stub_ranges_unlock();
  return found ? CUDA_SUCCESS : unknown;
}
CUresult cuMemFreeHost(void *memory) {
  ENTER(cuMemFreeHost);
  return forget(memory, STUB_HOST, CUDA_ERROR_INVALID_VALUE);
}
CUresult cuMemHostUnregister(void *memory) {
  ENTER(cuMemHostUnregister);
  return forget(memory, STUB_REGISTERED, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
}

static bool overlaps(const char *base, size_t bytes) {
  for (struct stub_range *range = stub_range_first(); range; range = range->next)
    if (range->base < base + bytes && range->base + range->bytes > base) return true;
  return false;
}
static CUresult pin(void *memory, size_t bytes, unsigned flags, CUcontext context) {
  bool write = !(flags & CU_MEMHOSTREGISTER_READ_ONLY);
  if (!stub_pin(memory, bytes, write)) return CUDA_ERROR_INVALID_VALUE;
  struct stub_range *range = stub_range_add(STUB_REGISTERED, memory, bytes, bytes, context);
  range->flags = flags | CU_MEMHOSTREGISTER_DEVICEMAP;
  if (!write) range->prot = PROT_READ;
  return CUDA_SUCCESS;
}
CUresult cuMemHostRegister_v2(void *memory, size_t bytes, unsigned int flags) {
  ENTER(cuMemHostRegister_v2);
  CUcontext context;
  CUresult result = stub_current(&context);
  if (!result) result = stub_unsafe();
  if (result) return result;
  if (!memory || !bytes || flags > 15) return CUDA_ERROR_INVALID_VALUE;
  stub_ranges_lock();
  if (overlaps(memory, bytes)) result = CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  else result = pin(memory, bytes, flags, context);
  stub_ranges_unlock();
  return result;
}
FORWARD(cuMemHostRegister, cuMemHostRegister_v2, (memory, bytes, flags), void *memory, size_t bytes, unsigned int flags)

static CUresult pinned(const void *memory, unsigned *flags) {
  stub_ranges_lock();
  struct stub_range *range = stub_range_find(memory);
  bool found = range && (range->kind == STUB_HOST || range->kind == STUB_REGISTERED);
  if (found) *flags = range->flags;
  stub_ranges_unlock();
  return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *address, void *memory, unsigned int flags) {
  ENTER(cuMemHostGetDevicePointer_v2);
  unsigned unused;
  if (!address || flags || pinned(memory, &unused)) return CUDA_ERROR_INVALID_VALUE;
  *address = (CUdeviceptr)memory;
  return CUDA_SUCCESS;
}
CUresult cuMemHostGetFlags(unsigned int *flags, void *memory) {
  ENTER(cuMemHostGetFlags);
  return flags ? pinned(memory, flags) : CUDA_ERROR_INVALID_VALUE;
}

/* A handle is the memory's name and the process that gave it. */
CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr address) {
  ENTER(cuIpcGetMemHandle);
  stub_ranges_lock();
  struct stub_range *range = stub_range_find((void *)address);
  bool good = handle && range && range->kind == STUB_DEVICE; /* neither cuMemCreate's nor a pool's */
  if (good) {
    memset(handle, 0, sizeof *handle);
    snprintf(handle->reserved, sizeof handle->reserved, "%.63s", range->physical->name);
    range->physical->shared = true;
  }
  stub_ranges_unlock();
  return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *address, CUipcMemHandle handle, unsigned int flags) {
  ENTER(cuIpcOpenMemHandle_v2);
  CUcontext context;
  struct stub_physical *physical;
  int pid;
  CUresult result = stub_current(&context);
  if (result) return result;
  handle.reserved[sizeof handle.reserved - 1] = 0;
  if (!address || flags > 1 || sscanf(handle.reserved, "%*d.%*u.%d.", &pid) != 1) return CUDA_ERROR_INVALID_VALUE;
  if (pid == getpid()) return CUDA_ERROR_INVALID_CONTEXT;
  result = stub_physical_open(handle.reserved, &physical);
  if (result) return result;
  void *base = mmap(NULL, physical->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, physical->fd, 0);
  if (base == MAP_FAILED) return stub_physical_drop(physical), CUDA_ERROR_MAP_FAILED;
  madvise(base, physical->bytes, MADV_DONTFORK);
  struct stub_range *range = stub_range_add(STUB_IMPORTED, base, physical->bytes, physical->bytes, context);
  range->physical = physical;
  physical->maps++;
  *address = (CUdeviceptr)base;
  return CUDA_SUCCESS;
}
FORWARD(cuIpcOpenMemHandle, cuIpcOpenMemHandle_v2, (address, handle, flags), CUdeviceptr *address, CUipcMemHandle handle,
        unsigned int flags)

CUresult cuIpcCloseMemHandle(CUdeviceptr address) {
  ENTER(cuIpcCloseMemHandle);
  stub_ranges_lock();
  struct stub_range *range = stub_range_find((void *)address);
  bool good = range && range->kind == STUB_IMPORTED && (CUdeviceptr)range->base == address;
  if (good) stub_device_free(range);
  stub_ranges_unlock();
  return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
