/* Copies of one row of bytes.
 *
 * As with the real driver: a copy between device memories never waits, the plain calls wait where host memory takes part,
 * and asynchronous ones wait for pageable memory only: for the whole copy on the way to the host; on the way to the
 * device the bytes are set aside, so that the caller may change them at once. */
#include "copy.h"

bool stub_is_device(const void *address) {
  stub_ranges_lock();
  struct stub_range *range = stub_range_find(address);
  bool device = range && range->kind != STUB_HOST && range->kind != STUB_REGISTERED;
  stub_ranges_unlock();
  return device;
}

bool stub_is_pinned(const void *address) {
  stub_ranges_lock();
  struct stub_range *range = stub_range_find(address);
  bool pinned = range && (range->kind == STUB_HOST || range->kind == STUB_REGISTERED);
  stub_ranges_unlock();
  return pinned;
}

bool stub_stream_captures(CUstream handle) {
  CUstream stream;
  return stub_stream(handle, &stream) == CUDA_SUCCESS && stream->capture;
}

struct row { void *to; const void *from; size_t bytes; bool to_device, from_device; };

static void copy_piece(void *payload, size_t at, size_t bytes) {
  struct row *row = payload;
  memmove((char *)row->to + at, (const char *)row->from + at, bytes);
}
static CUresult run(void *payload) {
  struct row *row = payload;
  struct stub_access places[] = {{row->to, .write = true, .host = !row->to_device}, {row->from, .host = !row->from_device}};
  return stub_by_pieces(places, 2, row->bytes, copy_piece, row);
}

CUresult stub_copy(CUstream stream, const void *to, const void *from, size_t bytes, bool wait) {
  struct row row = {(void *)to, from, bytes, stub_is_device(to), stub_is_device(from)};
  if (!bytes) return CUDA_SUCCESS;
  if ((row.to_device && !stub_reaches((CUdeviceptr)to, bytes, true)) ||
      (row.from_device && !stub_reaches((CUdeviceptr)from, bytes, false)))
    return CUDA_ERROR_INVALID_VALUE;
  struct stub_op *op = stub_op(CU_GRAPH_NODE_TYPE_MEMCPY, run, &row, sizeof row);
  bool on_host = !row.to_device || !row.from_device, captures = stub_stream_captures(stream);
  bool to_pageable = !row.to_device && !stub_is_pinned(to);
  if ((wait && on_host) || (to_pageable && !captures)) return stub_submit_wait(stream, op);
  if (!row.from_device && !stub_is_pinned(from) && !captures) {
    op->owned = malloc(bytes);
    memcpy(op->owned, from, bytes);
    ((struct row *)op->payload)->from = op->owned;
  }
  return stub_submit(stream, op);
}

static CUresult to_device(CUstream stream, CUdeviceptr to, const void *from, size_t bytes, bool wait) {
  if (bytes && !stub_is_device((void *)to) && !stub_is_pinned((void *)to)) return CUDA_ERROR_INVALID_VALUE;
  return stub_copy(stream, (void *)to, from, bytes, wait);
}
static CUresult to_host(CUstream stream, void *to, CUdeviceptr from, size_t bytes, bool wait) {
  if (bytes && !stub_is_device((void *)from) && !stub_is_pinned((void *)from)) return CUDA_ERROR_INVALID_VALUE;
  return stub_copy(stream, to, (void *)from, bytes, wait);
}
static CUresult between(CUstream stream, CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  if (bytes && !stub_is_device((void *)to) && !stub_is_pinned((void *)to)) return CUDA_ERROR_INVALID_VALUE;
  if (bytes && !stub_is_device((void *)from) && !stub_is_pinned((void *)from)) return CUDA_ERROR_INVALID_VALUE;
  return stub_copy(stream, (void *)to, (void *)from, bytes, false);
}

DEFAULT_CALL(cuMemcpy, (to, from, bytes), CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  return stub_copy(stream, (void *)to, (void *)from, bytes, true);
}
DEFAULT_CALL(cuMemcpyHtoD_v2, (to, from, bytes), CUdeviceptr to, const void *from, size_t bytes) {
  return to_device(stream, to, from, bytes, true);
}
DEFAULT_CALL(cuMemcpyDtoH_v2, (to, from, bytes), void *to, CUdeviceptr from, size_t bytes) {
  return to_host(stream, to, from, bytes, true);
}
DEFAULT_CALL(cuMemcpyDtoD_v2, (to, from, bytes), CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  return between(stream, to, from, bytes);
}
DEFAULT_CALL(cuMemcpyPeer, (to, to_context, from, from_context, bytes), CUdeviceptr to, CUcontext to_context,
             CUdeviceptr from, CUcontext from_context, size_t bytes) {
  (void)to_context, (void)from_context;
  return between(stream, to, from, bytes);
}
STREAM_CALL(cuMemcpyAsync, (to, from, bytes, stream), CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return stub_copy(stream, (void *)to, (void *)from, bytes, false);
}
STREAM_CALL(cuMemcpyHtoDAsync_v2, (to, from, bytes, stream), CUdeviceptr to, const void *from, size_t bytes, CUstream stream) {
  return to_device(stream, to, from, bytes, false);
}
STREAM_CALL(cuMemcpyDtoHAsync_v2, (to, from, bytes, stream), void *to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return to_host(stream, to, from, bytes, false);
}
STREAM_CALL(cuMemcpyDtoDAsync_v2, (to, from, bytes, stream), CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return between(stream, to, from, bytes);
}
STREAM_CALL(cuMemcpyPeerAsync, (to, to_context, from, from_context, bytes, stream), CUdeviceptr to, CUcontext to_context,
            CUdeviceptr from, CUcontext from_context, size_t bytes, CUstream stream) {
  (void)to_context, (void)from_context;
  return between(stream, to, from, bytes);
}

STREAM_CALL(cuMemcpyBatchAsync_v2, (to, from, bytes, count, attributes, indices, attribute_count, stream), CUdeviceptr *to,
            CUdeviceptr *from, size_t *bytes, size_t count, CUmemcpyAttributes *attributes, size_t *indices,
            size_t attribute_count, CUstream stream) {
  if (stream == CU_STREAM_LEGACY || !attributes || !indices || !attribute_count || !count) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = CUDA_SUCCESS;
  for (size_t i = 0; i < count && !result; i++) result = stub_copy(stream, (void *)to[i], (void *)from[i], bytes[i], false);
  return result;
}
STREAM_CALL(cuMemcpyBatchAsync, (to, from, bytes, count, attributes, indices, attribute_count, failed, stream),
            CUdeviceptr *to, CUdeviceptr *from, size_t *bytes, size_t count, CUmemcpyAttributes *attributes, size_t *indices,
            size_t attribute_count, size_t *failed, CUstream stream) {
  CUresult result = cuMemcpyBatchAsync_v2_on(to, from, bytes, count, attributes, indices, attribute_count, stream);
  if (result && failed) *failed = SIZE_MAX; /* which one is not told */
  return result;
}
