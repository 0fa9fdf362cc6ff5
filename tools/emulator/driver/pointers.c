/* Questions about addresses: cuPointerGetAttribute and its relatives. */
#include "stub.h"
#include <sys/mman.h>

static bool on_device(const struct stub_range *range) { return range->kind != STUB_HOST && range->kind != STUB_REGISTERED; }

/* What the driver's attributes say of a range.  False: it has no such attribute here. */
static bool describe(const struct stub_range *range, CUpointer_attribute attribute, CUdeviceptr address, uint64_t *value,
                     size_t *size) {
  *size = sizeof(unsigned int);
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE: *value = on_device(range) ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST; return true;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED: *size = 1, *value = range->kind == STUB_MANAGED; return true;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE: *size = 1, *value = range->kind == STUB_DEVICE; return true;
    case CU_POINTER_ATTRIBUTE_MAPPED: *size = 1, *value = 1; return true;
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS: *size = 1, *value = 0; return true;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      *size = 8, *value = range->physical ? range->physical->prop.requestedHandleTypes : 0;
      return true;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      *size = sizeof(int);
      *value = (uint64_t)(range->physical ? range->physical->prop.location.id : range->context ? range->context->device : 0);
      return true;
    default: break;
  }
  *size = 8;
  switch (attribute) {
    /* memory from cuMemCreate and from pools belongs to no context */
    case CU_POINTER_ATTRIBUTE_CONTEXT: *value = (uintptr_t)range->context; return range->context != NULL;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER: *value = address; return true;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER: *value = address; return !on_device(range) || range->kind == STUB_MANAGED;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID: *value = range->id; return true;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: *value = (uintptr_t)range->base; return true;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE: *value = range->bytes; return true;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE: *value = (uintptr_t)range->pool; return range->pool != NULL;
    default: return false;
  }
}

static CUresult ask(void *data, CUpointer_attribute attribute, CUdeviceptr address) {
  uint64_t value;
  size_t size;
  stub_ranges_lock();
  struct stub_range *range = stub_range_find((void *)address);
  bool known = range && describe(range, attribute, address, &value, &size);
  stub_ranges_unlock();
  if (!known) return CUDA_ERROR_INVALID_VALUE;
  memcpy(data, &value, size); /* little endian, as every machine that this driver knows */
  return CUDA_SUCCESS;
}

CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr address) {
  ENTER(cuPointerGetAttribute);
  return data ? ask(data, attribute, address) : CUDA_ERROR_INVALID_VALUE;
}

static size_t answer_size(CUpointer_attribute attribute) {
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: return 4;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_MAPPED: return 1;
    default: return 8;
  }
}

/* Unlike the single form it answers zeros for addresses that the driver does not know. */
CUresult cuPointerGetAttributes(unsigned int count, CUpointer_attribute *attributes, void **data, CUdeviceptr address) {
  ENTER(cuPointerGetAttributes);
  if (!attributes || !data) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < count; i++)
    if (ask(data[i], attributes[i], address)) memset(data[i], 0, answer_size(attributes[i]));
  return CUDA_SUCCESS;
}

CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute attribute, CUdeviceptr address) {
  ENTER(cuPointerSetAttribute);
  if (attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS || !value) return CUDA_ERROR_INVALID_VALUE;
  return stub_reaches(address, 1, false) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr address) {
  ENTER(cuMemGetAddressRange_v2);
  stub_ranges_lock();
  struct stub_range *range = stub_range_find((void *)address);
  if (range && base) *base = (CUdeviceptr)range->base;
  if (range && bytes) *bytes = range->bytes;
  stub_ranges_unlock();
  return range ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
