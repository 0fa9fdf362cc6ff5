/* Questions about addresses.
 *
 * Without the turn the memory of a segment may be unmapped, and the driver does not know its address then.  The program
 * has done nothing wrong (Triton asks about each argument before a launch), so it waits for the turn and asks again. */
#include "cuda_grant.h"

static bool away(CUdeviceptr address) {
  if (!cp_segments_serve() || !cp_segments_hold(address)) return false;
  uint32_t class_ = address >= cp_extents_base(1);
  return address - cp_extents_base(class_) >= cp_extents_mapped(class_);
}

static bool of_a_segment(CUdeviceptr address) {
  CUdeviceptr base;
  size_t bytes;
  return cp_segments_serve() && cp_segment_range(address, &base, &bytes);
}

#define ASK(symbol, arguments, ...) \
  CP_GATE(symbol, __VA_ARGS__) { \
    cp_driver_start(); \
    CUresult r = cp_real.symbol arguments; \
    if (CP_LIKELY((r == CUDA_SUCCESS && !away(address)) || !of_a_segment(address))) return r; \
    uint64_t leave = 0; \
    struct cp_thread *t = cp_enter(&leave); \
    r = cp_real.symbol arguments; \
    cp_leave(t, leave); \
    return r; \
  }
ASK(cuPointerGetAttribute, (data, attribute, address), void *data, CUpointer_attribute attribute, CUdeviceptr address)
ASK(cuPointerGetAttributes, (count, attributes, data, address), unsigned int count, CUpointer_attribute *attributes,
    void **data, CUdeviceptr address)
ASK(cuPointerSetAttribute, (value, attribute, address), const void *value, CUpointer_attribute attribute,
    CUdeviceptr address)

/* What cuMemAlloc has returned, not the extent below it. */
CP_GATE(cuMemGetAddressRange_v2, CUdeviceptr *base, size_t *bytes, CUdeviceptr address) {
  CUdeviceptr begin;
  size_t size;
  cp_driver_start();
  if (!cp_segments_serve() || !cp_segment_range(address, &begin, &size))
    return cp_real.cuMemGetAddressRange_v2(base, bytes, address);
  if (base) *base = begin;
  if (bytes) *bytes = size;
  return CUDA_SUCCESS;
}
