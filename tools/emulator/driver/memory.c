/* Device memory of the plain kind, managed memory, and how much there is. */
#define _GNU_SOURCE
#include "stub.h"
#include <sys/mman.h>

CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total) {
  ENTER(cuMemGetInfo_v2);
  CUcontext context;
  CUresult result = stub_current(&context);
  if (result) return result;
  size_t bytes = stub.device[context->device].bytes, used = stub_used(stub.device[context->device].ordinal);
  if (total) *total = bytes; /* whoever wants one of the two names no place for the other, as OptiX does */
  if (free_bytes) *free_bytes = used < bytes ? bytes - used : 0;
  return CUDA_SUCCESS;
}

static CUresult take(CUdeviceptr *address, size_t bytes) {
  CUcontext context;
  struct stub_range *range;
  CUresult result = stub_current(&context);
  if (!result) result = stub_unsafe();
  if (result) return result;
  if (!address) return CUDA_ERROR_INVALID_VALUE;
  result = stub_device_alloc(context, STUB_DEVICE, bytes, &range);
  if (!result) *address = (CUdeviceptr)range->base;
  return result;
}

CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes) {
  ENTER(cuMemAlloc_v2);
  return take(address, bytes);
}

CUresult cuMemAllocPitch_v2(CUdeviceptr *address, size_t *pitch, size_t width, size_t height, unsigned int element) {
  ENTER(cuMemAllocPitch_v2);
  if (!pitch || !height || (element != 4 && element != 8 && element != 16)) return CUDA_ERROR_INVALID_VALUE;
  *pitch = stub_round(width, 512);
  return take(address, *pitch * height);
}

/* Managed memory is host memory that the device reaches: it never counts, because the real one may leave the device. */
CUresult cuMemAllocManaged(CUdeviceptr *address, size_t bytes, unsigned int flags) {
  ENTER(cuMemAllocManaged);
  CUcontext context;
  CUresult result = stub_current(&context);
  if (!result) result = stub_unsafe();
  if (result) return result;
  if (!address || !bytes || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST)) return CUDA_ERROR_INVALID_VALUE;
  size_t span = stub_round(bytes, 4096);
  void *base = mmap(NULL, span, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  stub_range_add(STUB_MANAGED, base, bytes, span, context);
  *address = (CUdeviceptr)base;
  return CUDA_SUCCESS;
}

static bool may_free(const struct stub_range *range, CUdeviceptr address) {
  return range && (CUdeviceptr)range->base == address &&
         (range->kind == STUB_DEVICE || range->kind == STUB_POOLED || range->kind == STUB_MANAGED);
}

/* Waits for all of the context's work first, as the real one does. */
CUresult cuMemFree_v2(CUdeviceptr address) {
  ENTER(cuMemFree_v2);
  CUcontext context;
  CUresult result = stub_current(&context);
  if (!result && address) result = stub_unsafe();
  if (result || !address) return result;
  result = stub_context_drain(context);
  if (result) return result;
  stub_ranges_lock();
  struct stub_range *range = stub_range_find((void *)address);
  bool known = may_free(range, address) && (range->kind != STUB_POOLED || stub_pool_forget(range));
  if (known) stub_device_free(range);
  stub_ranges_unlock();
  return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Prefetching is work on a stream that changes nothing here. */
static CUresult prefetch(CUdeviceptr address, size_t bytes, CUstream stream) {
  if (!bytes || !stub_reaches(address, bytes, false)) return CUDA_ERROR_INVALID_VALUE;
  return stub_submit(stream, stub_op(CU_GRAPH_NODE_TYPE_EMPTY, NULL, NULL, 0));
}
STREAM_CALL(cuMemPrefetchAsync, (address, bytes, device, stream), CUdeviceptr address, size_t bytes, CUdevice device,
            CUstream stream) {
  if (device < CU_DEVICE_CPU || device >= stub.devices) return CUDA_ERROR_INVALID_DEVICE;
  return prefetch(address, bytes, stream);
}
STREAM_CALL(cuMemPrefetchAsync_v2, (address, bytes, location, flags, stream), CUdeviceptr address, size_t bytes,
            CUmemLocation location, unsigned int flags, CUstream stream) {
  if (flags) return CUDA_ERROR_INVALID_VALUE;
  if (location.type == CU_MEM_LOCATION_TYPE_DEVICE && (location.id < 0 || location.id >= stub.devices))
    return CUDA_ERROR_INVALID_DEVICE;
  return prefetch(address, bytes, stream);
}
STREAM_CALL(cuMemPrefetchBatchAsync, (addresses, bytes, count, locations, indices, location_count, flags, stream),
            CUdeviceptr *addresses, size_t *bytes, size_t count, CUmemLocation *locations, size_t *indices,
            size_t location_count, unsigned long long flags, CUstream stream) {
  if (flags || !count || !locations || !indices || !location_count) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = CUDA_SUCCESS;
  for (size_t i = 0; i < count && !result; i++) result = prefetch(addresses[i], bytes[i], stream);
  return result;
}

/* What is discarded has any content afterwards: here not the one of before. */
struct discarded { CUdeviceptr address; size_t bytes; };
static void overwrite_piece(void *payload, size_t at, size_t bytes) {
  struct discarded *what = payload;
  memset((char *)what->address + at, 0xdd, bytes);
}
static CUresult overwrite(void *payload) {
  struct discarded *what = payload;
  struct stub_access place = {(void *)what->address, .write = true};
  return stub_by_pieces(&place, 1, what->bytes, overwrite_piece, what);
}
static CUresult discard(CUdeviceptr address, size_t bytes, CUstream stream) {
  struct discarded what = {address, bytes};
  if (!bytes || !stub_reaches(address, bytes, true)) return CUDA_ERROR_INVALID_VALUE;
  return stub_submit(stream, stub_op(CU_GRAPH_NODE_TYPE_EMPTY, overwrite, &what, sizeof what));
}
STREAM_CALL(cuMemDiscardBatchAsync, (addresses, bytes, count, flags, stream), CUdeviceptr *addresses, size_t *bytes,
            size_t count, unsigned long long flags, CUstream stream) {
  if (flags || !count) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = CUDA_SUCCESS;
  for (size_t i = 0; i < count && !result; i++) result = discard(addresses[i], bytes[i], stream);
  return result;
}
STREAM_CALL(cuMemDiscardAndPrefetchBatchAsync,
            (addresses, bytes, count, locations, indices, location_count, flags, stream), CUdeviceptr *addresses,
            size_t *bytes, size_t count, CUmemLocation *locations, size_t *indices, size_t location_count,
            unsigned long long flags, CUstream stream) {
  if (!locations || !indices || !location_count) return CUDA_ERROR_INVALID_VALUE;
  return cuMemDiscardBatchAsync_on(addresses, bytes, count, flags, stream);
}

CUresult cuMemAdvise_v2(CUdeviceptr address, size_t bytes, CUmem_advise advice, CUmemLocation location) {
  ENTER(cuMemAdvise_v2);
  (void)advice, (void)location;
  return bytes && stub_reaches(address, bytes, false) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
FORWARD(cuMemAdvise, cuMemAdvise_v2, (address, bytes, advice, (CUmemLocation){CU_MEM_LOCATION_TYPE_DEVICE, device}),
        CUdeviceptr address, size_t bytes, CUmem_advise advice, CUdevice device)
