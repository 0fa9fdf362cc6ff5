/* Memory in stream order.  An allocation is there at once; a free is work on its stream, after which the block waits in its
 * pool for the next allocation of its size.  When the host waits for a stream, pools give back what is above their
 * threshold.  In a capture an allocation lasts until cuMemFree or the end of the process, at one address for all launches. */
#include "stub.h"

struct CUmemPoolHandle_st {
  int device; /* visible number */
  bool destroyed;
  uint64_t threshold, reserved, reserved_high, used, used_high;
  CUmemAccess_flags access;
  struct free_block { struct stub_range *range; struct free_block *next; } *free_blocks;
  CUmemoryPool next;
};
static CUmemoryPool pools, defaults[STUB_DEVICES], current[STUB_DEVICES]; /* under the lock of the ranges */

static CUmemoryPool make(int device) {
  CUmemoryPool pool = calloc(1, sizeof *pool);
  *pool = (struct CUmemPoolHandle_st){.device = device, .access = CU_MEM_ACCESS_FLAGS_PROT_READWRITE, .next = pools};
  return pools = pool;
}
static CUmemoryPool default_of(int device) {
  if (!defaults[device]) defaults[device] = make(device);
  return defaults[device];
}
static CUmemoryPool current_of(int device) { return current[device] ? current[device] : default_of(device); }

static void trim(CUmemoryPool pool, uint64_t keep) {
  while (pool->free_blocks && pool->reserved > keep) {
    struct free_block *block = pool->free_blocks;
    pool->free_blocks = block->next;
    pool->reserved -= block->range->span;
    stub_device_free(block->range);
    free(block);
  }
}

void stub_pools_trim(void) {
  stub_ranges_lock();
  for (CUmemoryPool pool = pools; pool; pool = pool->next) trim(pool, pool->threshold);
  stub_ranges_unlock();
}

static struct stub_range *reuse(CUmemoryPool pool, size_t span) {
  for (struct free_block **at = &pool->free_blocks; *at; at = &(*at)->next)
    if ((*at)->range->span == span) {
      struct free_block *block = *at;
      struct stub_range *range = block->range;
      *at = block->next;
      free(block);
      return range;
    }
  return NULL;
}

static void count(CUmemoryPool pool, int64_t used, int64_t reserved) {
  pool->used += (uint64_t)used;
  pool->reserved += (uint64_t)reserved;
  if (pool->used > pool->used_high) pool->used_high = pool->used;
  if (pool->reserved > pool->reserved_high) pool->reserved_high = pool->reserved;
}

static CUresult take(CUmemoryPool pool, size_t bytes, struct stub_range **range) {
  struct CUctx_st home = {.device = pool->device};
  size_t span = stub_round(bytes, STUB_PAGE);
  *range = reuse(pool, span);
  if (!*range) {
    CUresult result = stub_device_alloc(&home, STUB_POOLED, bytes, range);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) { /* what is free in the wrong sizes is given up first */
      trim(pool, 0);
      result = stub_device_alloc(&home, STUB_POOLED, bytes, range);
    }
    if (result) return result;
    count(pool, 0, (int64_t)span);
  }
  (*range)->bytes = bytes;
  (*range)->context = NULL;
  (*range)->pool = pool;
  (*range)->prot = 3;
  count(pool, (int64_t)span, 0);
  return CUDA_SUCCESS;
}

static CUresult take_locked(int device, CUmemoryPool pool, CUdeviceptr *address, size_t bytes) {
  struct stub_range *range;
  stub_ranges_lock();
  CUresult result = take(pool ? pool : current_of(device), bytes, &range);
  if (!result) *address = (CUdeviceptr)range->base;
  stub_ranges_unlock();
  return result;
}

static CUresult alloc(CUstream stream, CUmemoryPool pool, CUdeviceptr *address, size_t bytes) {
  CUstream real;
  CUresult result = stub_stream(stream, &real);
  if (result) return result;
  if (!address || !bytes || (pool && pool->destroyed)) return CUDA_ERROR_INVALID_VALUE;
  int device = real->context->device;
  result = take_locked(device, pool, address, bytes);
  if (result == CUDA_ERROR_OUT_OF_MEMORY && !real->capture) { /* the real one need not wait for what is freed before it */
    result = stub_stream_drain(real);
    if (!result) result = take_locked(device, pool, address, bytes);
  }
  return result ? result : stub_submit(stream, stub_op(CU_GRAPH_NODE_TYPE_MEM_ALLOC, NULL, NULL, 0));
}
STREAM_CALL(cuMemAllocAsync, (address, bytes, stream), CUdeviceptr *address, size_t bytes, CUstream stream) {
  return alloc(stream, NULL, address, bytes);
}
STREAM_CALL(cuMemAllocFromPoolAsync, (address, bytes, pool, stream), CUdeviceptr *address, size_t bytes, CUmemoryPool pool,
            CUstream stream) {
  return pool ? alloc(stream, pool, address, bytes) : CUDA_ERROR_INVALID_VALUE;
}

bool stub_pool_forget(struct stub_range *range) {
  if (range->prot) count(range->pool, -(int64_t)range->span, -(int64_t)range->span);
  return range->prot != 0;
}

static CUresult run_free(void *payload) {
  void *address = *(void **)payload;
  stub_ranges_lock();
  struct stub_range *range = stub_range_find(address);
  if (range && range->kind == STUB_POOLED && range->prot) {
    struct free_block *block = malloc(sizeof *block);
    *block = (struct free_block){range, range->pool->free_blocks};
    range->pool->free_blocks = block;
    range->prot = 0; /* a kernel that comes later and uses it is wrong */
    count(range->pool, -(int64_t)range->span, 0);
  } else if (range && range->kind != STUB_POOLED) stub_device_free(range);
  stub_ranges_unlock();
  return CUDA_SUCCESS;
}
STREAM_CALL(cuMemFreeAsync, (address, stream), CUdeviceptr address, CUstream stream) {
  CUstream real;
  CUresult result = stub_stream(stream, &real);
  if (result || !address) return result;
  stub_ranges_lock();
  struct stub_range *range = stub_range_find((void *)address);
  bool good = range && (CUdeviceptr)range->base == address && range->prot;
  good = good && (range->kind == STUB_POOLED || range->kind == STUB_DEVICE);
  stub_ranges_unlock();
  if (!good) return CUDA_ERROR_INVALID_VALUE;
  void *at = (void *)address;
  return stub_submit(stream, stub_op(CU_GRAPH_NODE_TYPE_MEM_FREE, real->capture ? NULL : run_free, &at, sizeof at));
}

CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *props) {
  ENTER(cuMemPoolCreate);
  if (!pool || !props || props->allocType != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
  if (props->handleTypes || props->location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
  if (props->location.id < 0 || props->location.id >= stub.devices) return CUDA_ERROR_INVALID_DEVICE;
  stub_ranges_lock();
  *pool = make(props->location.id);
  stub_ranges_unlock();
  return CUDA_SUCCESS;
}
CUresult cuMemPoolDestroy(CUmemoryPool pool) {
  ENTER(cuMemPoolDestroy);
  if (!pool || pool->destroyed) return CUDA_ERROR_INVALID_VALUE;
  stub_ranges_lock();
  bool is_default = pool == default_of(pool->device);
  if (!is_default) pool->destroyed = true, pool->threshold = 0, trim(pool, 0);
  if (current[pool->device] == pool && !is_default) current[pool->device] = NULL;
  stub_ranges_unlock();
  return is_default ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep) {
  ENTER(cuMemPoolTrimTo);
  if (!pool) return CUDA_ERROR_INVALID_VALUE;
  stub_ranges_lock();
  trim(pool, keep);
  stub_ranges_unlock();
  return CUDA_SUCCESS;
}

static uint64_t *attribute_of(CUmemoryPool pool, CUmemPool_attribute attribute) {
  switch (attribute) {
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD: return &pool->threshold;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT: return &pool->reserved;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH: return &pool->reserved_high;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT: return &pool->used;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH: return &pool->used_high;
    default: return NULL;
  }
}
CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value) {
  ENTER(cuMemPoolGetAttribute);
  if (!pool || !value || attribute < 1 || attribute > 8) return CUDA_ERROR_INVALID_VALUE;
  stub_ranges_lock();
  uint64_t *at = attribute_of(pool, attribute);
  if (at) memcpy(value, at, sizeof *at);
  else *(int *)value = 1; /* how it may reuse memory */
  stub_ranges_unlock();
  return CUDA_SUCCESS;
}
CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value) {
  ENTER(cuMemPoolSetAttribute);
  if (!pool || !value || attribute < 1 || attribute > 8) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = CUDA_SUCCESS;
  stub_ranges_lock();
  uint64_t wanted = attribute > 3 ? *(uint64_t *)value : 0;
  if (attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) pool->threshold = wanted;
  else if (attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH && !wanted) pool->reserved_high = pool->reserved;
  else if (attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH && !wanted) pool->used_high = pool->used;
  else if (attribute > 3) result = CUDA_ERROR_INVALID_VALUE;
  stub_ranges_unlock();
  return result;
}
CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *access, size_t desc_count) {
  ENTER(cuMemPoolSetAccess);
  return pool && access && desc_count ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuMemPoolGetAccess(CUmemAccess_flags *flags, CUmemoryPool pool, CUmemLocation *location) {
  ENTER(cuMemPoolGetAccess);
  if (!pool || !flags || !location) return CUDA_ERROR_INVALID_VALUE;
  *flags = location->id == pool->device ? pool->access : CU_MEM_ACCESS_FLAGS_PROT_NONE;
  return CUDA_SUCCESS;
}

static CUresult device_pool(CUmemoryPool *pool, CUdevice device, CUmemoryPool (*which)(int)) {
  if (!pool) return CUDA_ERROR_INVALID_VALUE;
  if (device < 0 || device >= stub.devices) return CUDA_ERROR_INVALID_DEVICE;
  stub_ranges_lock();
  *pool = which(device);
  stub_ranges_unlock();
  return CUDA_SUCCESS;
}
CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice device) {
  ENTER(cuDeviceGetMemPool);
  return device_pool(pool, device, current_of);
}
CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device) {
  ENTER(cuDeviceGetDefaultMemPool);
  return device_pool(pool, device, default_of);
}
CUresult cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool) {
  ENTER(cuDeviceSetMemPool);
  if (device < 0 || device >= stub.devices || !pool || pool->device != device) return CUDA_ERROR_INVALID_DEVICE;
  stub_ranges_lock();
  current[device] = pool;
  stub_ranges_unlock();
  return CUDA_SUCCESS;
}
