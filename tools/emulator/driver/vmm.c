/* Virtual memory management: reservations of addresses, physical memory as handles, and mappings of one on the other. */
#define _GNU_SOURCE
#include "stub.h"
#include <fcntl.h>
#include <sys/mman.h>

struct reservation { char *base; size_t bytes; struct reservation *next; };
static struct reservation *reservations; /* under the lock of the ranges */

static bool aligned(uint64_t value) { return value % STUB_PAGE == 0; }
static void *reserve_pages(void *at, size_t bytes, int flags) {
  return mmap(at, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags, -1, 0);
}

CUresult cuMemAddressReserve(CUdeviceptr *address, size_t bytes, size_t alignment, CUdeviceptr hint, unsigned long long flags) {
  ENTER(cuMemAddressReserve);
  if (!address || flags || !bytes || !aligned(bytes) || (alignment & (alignment - 1))) return CUDA_ERROR_INVALID_VALUE;
  if (alignment < STUB_PAGE) alignment = STUB_PAGE;
  char *base = hint && hint % alignment == 0 ? reserve_pages((void *)hint, bytes, MAP_FIXED_NOREPLACE) : MAP_FAILED;
  if (base == MAP_FAILED) { /* the address was a wish only */
    char *raw = reserve_pages(NULL, bytes + alignment, 0);
    if (raw == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
    base = (char *)stub_round((size_t)raw, alignment);
    if (base > raw) munmap(raw, (size_t)(base - raw));
    munmap(base + bytes, (size_t)(raw + alignment - base));
  }
  struct reservation *reservation = malloc(sizeof *reservation);
  stub_ranges_lock();
  *reservation = (struct reservation){base, bytes, reservations};
  reservations = reservation;
  stub_ranges_unlock();
  *address = (CUdeviceptr)base;
  return CUDA_SUCCESS;
}

static bool mapped_anywhere(const char *base, size_t bytes) {
  for (struct stub_range *range = stub_range_first(); range; range = range->next)
    if (range->base < base + bytes && range->base + range->bytes > base) return true;
  return false;
}

CUresult cuMemAddressFree(CUdeviceptr address, size_t bytes) {
  ENTER(cuMemAddressFree);
  CUresult result = CUDA_ERROR_INVALID_VALUE;
  stub_ranges_lock();
  for (struct reservation **at = &reservations; *at; at = &(*at)->next) {
    struct reservation *reservation = *at;
    if ((CUdeviceptr)reservation->base != address || reservation->bytes != bytes) continue;
    if (!mapped_anywhere(reservation->base, bytes)) {
      *at = reservation->next;
      munmap(reservation->base, bytes);
      free(reservation);
      result = CUDA_SUCCESS;
    }
    break;
  }
  stub_ranges_unlock();
  return result;
}

static CUresult check(const CUmemAllocationProp *prop) {
  if (!prop || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
  if (prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED; /* host memory: not here */
  if (prop->location.id < 0 || prop->location.id >= stub.devices) return CUDA_ERROR_INVALID_DEVICE;
  return prop->requestedHandleTypes & ~CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
}

CUresult cuMemGetAllocationGranularity(size_t *bytes, const CUmemAllocationProp *prop, CUmemAllocationGranularity_flags option) {
  ENTER(cuMemGetAllocationGranularity);
  CUresult result = check(prop);
  if (result || !bytes || option > CU_MEM_ALLOC_GRANULARITY_RECOMMENDED) return result ? result : CUDA_ERROR_INVALID_VALUE;
  *bytes = STUB_PAGE;
  return CUDA_SUCCESS;
}

static CUmemGenericAllocationHandle handle_of(struct stub_physical *physical) {
  physical->handles++;
  return (CUmemGenericAllocationHandle)(uintptr_t)physical;
}
static struct stub_physical *physical_of(CUmemGenericAllocationHandle handle) {
  struct stub_physical *physical = (struct stub_physical *)(uintptr_t)handle;
  return stub_physical_valid(physical) ? physical : NULL;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *prop,
                     unsigned long long flags) {
  ENTER(cuMemCreate);
  CUresult result = check(prop);
  if (result) return result;
  if (!handle || flags || !bytes || !aligned(bytes)) return CUDA_ERROR_INVALID_VALUE;
  struct stub_physical *physical;
  result = stub_physical_new(stub.device[prop->location.id].ordinal, bytes, STUB_OLD, &physical);
  if (result) return result;
  physical->prop = *prop;
  *handle = handle_of(physical);
  return CUDA_SUCCESS;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  ENTER(cuMemRelease);
  stub_ranges_lock();
  struct stub_physical *physical = physical_of(handle);
  if (physical) physical->handles--, stub_physical_drop(physical);
  stub_ranges_unlock();
  return physical ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static bool reserved(const char *base, size_t bytes) {
  for (struct reservation *at = reservations; at; at = at->next)
    if (base >= at->base && base + bytes <= at->base + at->bytes) return true;
  return false;
}

CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags) {
  ENTER(cuMemMap);
  CUresult result = CUDA_ERROR_INVALID_VALUE;
  stub_ranges_lock();
  struct stub_physical *physical = physical_of(handle);
  if (physical && !flags && !offset && bytes && aligned(bytes) && aligned(address) && bytes <= physical->bytes &&
      reserved((char *)address, bytes) && !mapped_anywhere((char *)address, bytes)) {
    struct stub_range *range = stub_range_add(STUB_MAPPED, (void *)address, bytes, bytes, NULL);
    range->physical = physical;
    physical->maps++;
    result = stub_range_map(range, PROT_NONE);
    if (result) physical->maps--, stub_range_remove(range);
  }
  stub_ranges_unlock();
  return result;
}

/* Calls `act` for each mapping if mappings cover the whole range and none sticks out of it. */
static CUresult for_each(CUdeviceptr address, size_t bytes, CUresult (*act)(struct stub_range *, int), int argument) {
  char *base = (char *)address, *end = base + bytes;
  CUresult result = bytes ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  stub_ranges_lock();
  for (char *at = base; at < end && !result;) {
    struct stub_range *range = stub_range_find(at);
    if (!range || range->kind != STUB_MAPPED || range->base != at || at + range->bytes > end) result = CUDA_ERROR_INVALID_VALUE;
    else at += range->bytes;
  }
  for (char *at = base; at < end && !result;) {
    struct stub_range *range = stub_range_find(at);
    at += range->bytes;
    result = act(range, argument);
  }
  stub_ranges_unlock();
  return result;
}

static CUresult unmap(struct stub_range *range, int unused) {
  (void)unused;
  struct stub_physical *physical = range->physical;
  reserve_pages(range->base, range->bytes, MAP_FIXED);
  stub_range_remove(range);
  physical->maps--;
  stub_physical_drop(physical);
  return CUDA_SUCCESS;
}
CUresult cuMemUnmap(CUdeviceptr address, size_t bytes) {
  ENTER(cuMemUnmap);
  return for_each(address, bytes, unmap, 0);
}

static CUresult protect(struct stub_range *range, int prot) {
  if (mprotect(range->base, range->bytes, prot)) return CUDA_ERROR_OPERATING_SYSTEM;
  range->prot = prot;
  return CUDA_SUCCESS;
}
CUresult cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access, size_t count) {
  ENTER(cuMemSetAccess);
  if (!access || !count) return CUDA_ERROR_INVALID_VALUE;
  int prot = PROT_NONE; /* the most that any device gets: the stub has one page table */
  for (size_t i = 0; i < count; i++) {
    if (access[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
    if (access[i].location.id < 0 || access[i].location.id >= stub.devices) return CUDA_ERROR_INVALID_DEVICE;
    if (access[i].flags & CU_MEM_ACCESS_FLAGS_PROT_READ) prot |= PROT_READ;
    if (access[i].flags & 2) prot |= PROT_WRITE;
  }
  return for_each(address, bytes, protect, prot);
}
CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr address) {
  ENTER(cuMemGetAccess);
  if (!flags || !location) return CUDA_ERROR_INVALID_VALUE;
  stub_ranges_lock();
  struct stub_range *range = stub_range_find((void *)address);
  if (range) *flags = (range->prot & PROT_READ ? 1u : 0u) | (range->prot & PROT_WRITE ? 2u : 0u);
  stub_ranges_unlock();
  return range ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemExportToShareableHandle(void *shareable, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type,
                                      unsigned long long flags) {
  ENTER(cuMemExportToShareableHandle);
  struct stub_physical *physical = physical_of(handle);
  if (!physical || !shareable || flags || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
      !(physical->prop.requestedHandleTypes & type))
    return CUDA_ERROR_INVALID_VALUE;
  int fd = fcntl(physical->fd, F_DUPFD_CLOEXEC, 0);
  if (fd < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  physical->shared = true;
  *(int *)shareable = fd;
  return CUDA_SUCCESS;
}
CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *shareable, CUmemAllocationHandleType type) {
  ENTER(cuMemImportFromShareableHandle);
  struct stub_physical *physical;
  if (!handle || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = stub_physical_import((int)(intptr_t)shareable, &physical);
  if (!result) *handle = handle_of(physical);
  return result;
}
CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop, CUmemGenericAllocationHandle handle) {
  ENTER(cuMemGetAllocationPropertiesFromHandle);
  struct stub_physical *physical = physical_of(handle);
  if (!prop || !physical) return CUDA_ERROR_INVALID_VALUE;
  *prop = physical->prop;
  return CUDA_SUCCESS;
}
CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address) {
  ENTER(cuMemRetainAllocationHandle);
  stub_ranges_lock();
  struct stub_range *range = stub_range_find(address);
  bool mapped = range && range->kind == STUB_MAPPED;
  if (mapped) *handle = handle_of(range->physical);
  stub_ranges_unlock();
  return mapped ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
