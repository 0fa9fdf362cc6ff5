/* Questions about addresses.
 *
 * Without the turn the memory of a segment, or memory that the program has made, may be unmapped, and the driver does not know its address then.  The program
 * has done nothing wrong (Triton asks about each argument before a launch), so it waits for the turn and asks again. */
#include "cuda/memory/grant.h"
#include "cuda/memory/handles.h"

static bool away(CUdeviceptr address) {
  if (!cp_segments_serve() || !cp_segments_hold(address)) return false;
  uint32_t class_ = address >= cp_extents_base(1);
  return address - cp_extents_base(class_) >= cp_extents_mapped(class_);
}

static bool may_be_away(CUdeviceptr address) {
  CUdeviceptr base;
  size_t bytes;
  return cp_segments_serve() && (cp_segment_range(address, &base, &bytes) || cp_handles_hold(address));
}

/* Where the range of an address begins and how long it is: a segment's, not the extent's below it. */
static void describe_segment(CUpointer_attribute attribute, void *data, CUdeviceptr address) {
  CUdeviceptr base;
  size_t bytes;
  bool start = attribute == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, size = attribute == CU_POINTER_ATTRIBUTE_RANGE_SIZE;
  if (!data || (!start && !size) || !cp_segments_serve() || !cp_segment_range(address, &base, &bytes)) return;
  if (start) *(CUdeviceptr *)data = base;
  if (size) *(size_t *)data = bytes;
}

static CUresult described(CUresult r, unsigned int count, const CUpointer_attribute *attributes, void **data,
                          CUdeviceptr address) {
  for (unsigned int i = 0; r == CUDA_SUCCESS && i < count; i++) describe_segment(attributes[i], data[i], address);
  return r;
}

/* answer: what the program gets for r, which is the driver's. */
#define ASK(symbol, arguments, answer, ...) \
  CP_GATE(symbol, __VA_ARGS__) { \
    cp_driver_start(); \
    CUresult r = cp_real.symbol arguments; \
    if (CP_LIKELY((r == CUDA_SUCCESS && !away(address)) || !may_be_away(address))) return answer; \
    uint64_t leave = 0; \
    struct cp_thread *t = cp_enter(&leave); \
    r = cp_real.symbol arguments; \
    cp_leave(t, leave); \
    return answer; \
  }
ASK(cuPointerGetAttribute, (data, attribute, address), described(r, 1, &attribute, &data, address), void *data,
    CUpointer_attribute attribute, CUdeviceptr address)
ASK(cuPointerGetAttributes, (count, attributes, data, address), described(r, count, attributes, data, address),
    unsigned int count, CUpointer_attribute *attributes, void **data, CUdeviceptr address)
ASK(cuPointerSetAttribute, (value, attribute, address), r, const void *value, CUpointer_attribute attribute,
    CUdeviceptr address)

static CUresult range_made(CUdeviceptr *base, size_t *bytes, CUdeviceptr address) {
  uint64_t leave = 0;
  struct cp_thread *t = cp_enter(&leave);
  CUresult r = cp_real.cuMemGetAddressRange_v2(base, bytes, address);
  cp_leave(t, leave);
  return r;
}

/* What cuMemAlloc has returned, not the extent below it. */
CP_GATE(cuMemGetAddressRange_v2, CUdeviceptr *base, size_t *bytes, CUdeviceptr address) {
  CUdeviceptr begin;
  size_t size;
  cp_driver_start();
  if (cp_segments_serve() && cp_handles_hold(address)) return range_made(base, bytes, address);
  if (!cp_segments_serve() || !cp_segment_range(address, &begin, &size))
    return cp_real.cuMemGetAddressRange_v2(base, bytes, address);
  if (base) *base = begin;
  if (bytes) *bytes = size;
  return CUDA_SUCCESS;
}
