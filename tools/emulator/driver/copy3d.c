/* Copies of boxes: two and three dimensions, and arrays. */
#include "array.h"
#include "copy.h"

struct side { char *base; size_t pitch, slice; bool device; };
struct box { struct side to, from; size_t width, height, depth; };

static char *row_of(const struct side *side, size_t y, size_t z) {
  return side->base + z * side->slice + y * side->pitch;
}

static bool inside(const struct side *side, const struct box *box, bool write) {
  for (size_t z = 0; side->device && z < box->depth; z++)
    for (size_t y = 0; y < box->height; y++)
      if (!stub_reaches((CUdeviceptr)row_of(side, y, z), box->width, write)) return false;
  return true;
}

static void copy_piece(void *places, size_t at, size_t bytes) {
  const struct stub_access *to = places, *from = to + 1;
  memmove((char *)to->address + at, (const char *)from->address + at, bytes);
}
static CUresult run(void *payload) {
  struct box *box = payload;
  CUresult result = CUDA_SUCCESS;
  for (size_t z = 0; z < box->depth; z++)
    for (size_t y = 0; y < box->height && !result; y++) {
      struct stub_access places[] = {{row_of(&box->to, y, z), .write = true, .host = !box->to.device},
                                     {row_of(&box->from, y, z), .host = !box->from.device}};
      result = stub_by_pieces(places, 2, box->width, copy_piece, places);
    }
  return result;
}

static struct side side_of(CUmemorytype type, const void *host, CUdeviceptr device, CUarray array, size_t pitch, size_t rows,
                           size_t x, size_t y, size_t z) {
  struct side side = {.pitch = pitch, .slice = pitch * rows};
  if (type == CU_MEMORYTYPE_ARRAY) side = (struct side){array->base, array->pitch, array->pitch * array->rows, true};
  else if (type == CU_MEMORYTYPE_HOST) side.base = (char *)host;
  else side.base = (char *)device, side.device = stub_is_device((void *)device);
  side.base += x + y * side.pitch + z * side.slice;
  return side;
}

static bool plain(CUmemorytype type, size_t pitch, size_t rows, const CUDA_MEMCPY3D *copy) {
  if (type < CU_MEMORYTYPE_HOST || type > CU_MEMORYTYPE_UNIFIED) return false;
  if (type == CU_MEMORYTYPE_ARRAY) return true;
  return (copy->Height <= 1 || pitch >= copy->WidthInBytes) && (copy->Depth <= 1 || rows >= copy->Height);
}

struct stub_op *stub_copy3d_op(const CUDA_MEMCPY3D *copy, CUresult *result) {
  *result = CUDA_ERROR_INVALID_VALUE;
  if (!copy || !plain(copy->srcMemoryType, copy->srcPitch, copy->srcHeight, copy) ||
      !plain(copy->dstMemoryType, copy->dstPitch, copy->dstHeight, copy))
    return NULL;
  struct box box = {
    .to = side_of(copy->dstMemoryType, copy->dstHost, copy->dstDevice, copy->dstArray, copy->dstPitch, copy->dstHeight,
                  copy->dstXInBytes, copy->dstY, copy->dstZ),
    .from = side_of(copy->srcMemoryType, copy->srcHost, copy->srcDevice, copy->srcArray, copy->srcPitch, copy->srcHeight,
                    copy->srcXInBytes, copy->srcY, copy->srcZ),
    .width = copy->WidthInBytes, .height = copy->Height, .depth = copy->Depth};
  if (!inside(&box.to, &box, true) || !inside(&box.from, &box, false)) return NULL;
  *result = CUDA_SUCCESS;
  return stub_op(CU_GRAPH_NODE_TYPE_MEMCPY, run, &box, sizeof box);
}

static CUresult submit(CUstream stream, const CUDA_MEMCPY3D *copy, bool wait) {
  CUresult result;
  struct stub_op *op = stub_copy3d_op(copy, &result);
  if (result) return result;
  struct box *box = (struct box *)op->payload;
  bool host = !box->to.device || !box->from.device;
  bool pageable = (!box->to.device && !stub_is_pinned(box->to.base)) || (!box->from.device && !stub_is_pinned(box->from.base));
  if ((wait && host) || (pageable && !stub_stream_captures(stream))) return stub_submit_wait(stream, op);
  return stub_submit(stream, op);
}

static CUDA_MEMCPY3D flat(const CUDA_MEMCPY2D *copy) {
  return (CUDA_MEMCPY3D){
    .srcXInBytes = copy->srcXInBytes, .srcY = copy->srcY, .srcMemoryType = copy->srcMemoryType, .srcHost = copy->srcHost,
    .srcDevice = copy->srcDevice, .srcArray = copy->srcArray, .srcPitch = copy->srcPitch ? copy->srcPitch : copy->WidthInBytes,
    .dstXInBytes = copy->dstXInBytes, .dstY = copy->dstY, .dstMemoryType = copy->dstMemoryType, .dstHost = copy->dstHost,
    .dstDevice = copy->dstDevice, .dstArray = copy->dstArray, .dstPitch = copy->dstPitch ? copy->dstPitch : copy->WidthInBytes,
    .WidthInBytes = copy->WidthInBytes, .Height = copy->Height, .Depth = 1};
}

DEFAULT_CALL(cuMemcpy2D_v2, (copy), const CUDA_MEMCPY2D *copy) {
  CUDA_MEMCPY3D box = flat(copy);
  return submit(stream, &box, true);
}
DEFAULT_CALL(cuMemcpy2DUnaligned_v2, (copy), const CUDA_MEMCPY2D *copy) {
  CUDA_MEMCPY3D box = flat(copy);
  return submit(stream, &box, true);
}
STREAM_CALL(cuMemcpy2DAsync_v2, (copy, stream), const CUDA_MEMCPY2D *copy, CUstream stream) {
  CUDA_MEMCPY3D box = flat(copy);
  return submit(stream, &box, false);
}
DEFAULT_CALL(cuMemcpy3D_v2, (copy), const CUDA_MEMCPY3D *copy) { return submit(stream, copy, true); }
STREAM_CALL(cuMemcpy3DAsync_v2, (copy, stream), const CUDA_MEMCPY3D *copy, CUstream stream) {
  return submit(stream, copy, false);
}
/* The same layout; the contexts take the place of reserved members that nobody reads here. */
DEFAULT_CALL(cuMemcpy3DPeer, (copy), const CUDA_MEMCPY3D_PEER *copy) { return submit(stream, (const CUDA_MEMCPY3D *)copy, true); }
STREAM_CALL(cuMemcpy3DPeerAsync, (copy, stream), const CUDA_MEMCPY3D_PEER *copy, CUstream stream) {
  return submit(stream, (const CUDA_MEMCPY3D *)copy, false);
}

STREAM_CALL(cuMemcpy3DBatchAsync_v2, (count, list, flags, stream), size_t count, CUDA_MEMCPY3D_BATCH_OP *list,
            unsigned long long flags, CUstream stream) {
  if (flags || !count || stream == CU_STREAM_LEGACY) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = CUDA_SUCCESS;
  for (size_t i = 0; i < count && !result; i++) {
    CUDA_MEMCPY3D_BATCH_OP *op = &list[i];
    if (op->src.type != CU_MEMCPY_OPERAND_TYPE_POINTER || op->dst.type != CU_MEMCPY_OPERAND_TYPE_POINTER)
      return CUDA_ERROR_NOT_SUPPORTED;
    CUDA_MEMCPY3D copy = {
      .srcMemoryType = CU_MEMORYTYPE_UNIFIED, .srcDevice = op->src.op.ptr.ptr, .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
      .srcPitch = op->src.op.ptr.rowLength ? op->src.op.ptr.rowLength : op->extent.width,
      .srcHeight = op->src.op.ptr.layerHeight ? op->src.op.ptr.layerHeight : op->extent.height,
      .dstDevice = op->dst.op.ptr.ptr,
      .dstPitch = op->dst.op.ptr.rowLength ? op->dst.op.ptr.rowLength : op->extent.width,
      .dstHeight = op->dst.op.ptr.layerHeight ? op->dst.op.ptr.layerHeight : op->extent.height,
      .WidthInBytes = op->extent.width, .Height = op->extent.height, .Depth = op->extent.depth};
    result = submit(stream, &copy, false);
  }
  return result;
}
STREAM_CALL(cuMemcpy3DBatchAsync, (count, list, failed, flags, stream), size_t count, CUDA_MEMCPY3D_BATCH_OP *list,
            size_t *failed, unsigned long long flags, CUstream stream) {
  CUresult result = cuMemcpy3DBatchAsync_v2_on(count, list, flags, stream);
  if (result && failed) *failed = SIZE_MAX;
  return result;
}

/* Bytes of a one-dimensional array. */
static CUresult row(CUstream stream, void *to, CUarray to_array, const void *from, CUarray from_array, size_t to_offset,
                    size_t from_offset, size_t bytes, bool wait) {
  char *target = to_array ? to_array->base + to_offset : to;
  const char *source = from_array ? from_array->base + from_offset : from;
  if ((to_array && to_offset + bytes > to_array->bytes) || (from_array && from_offset + bytes > from_array->bytes))
    return CUDA_ERROR_INVALID_VALUE;
  return stub_copy(stream, target, source, bytes, wait);
}
DEFAULT_CALL(cuMemcpyDtoA_v2, (to, offset, from, bytes), CUarray to, size_t offset, CUdeviceptr from, size_t bytes) {
  return row(stream, NULL, to, (void *)from, NULL, offset, 0, bytes, true);
}
DEFAULT_CALL(cuMemcpyAtoD_v2, (to, from, offset, bytes), CUdeviceptr to, CUarray from, size_t offset, size_t bytes) {
  return row(stream, (void *)to, NULL, NULL, from, 0, offset, bytes, true);
}
DEFAULT_CALL(cuMemcpyHtoA_v2, (to, offset, from, bytes), CUarray to, size_t offset, const void *from, size_t bytes) {
  return row(stream, NULL, to, from, NULL, offset, 0, bytes, true);
}
DEFAULT_CALL(cuMemcpyAtoH_v2, (to, from, offset, bytes), void *to, CUarray from, size_t offset, size_t bytes) {
  return row(stream, to, NULL, NULL, from, 0, offset, bytes, true);
}
DEFAULT_CALL(cuMemcpyAtoA_v2, (to, to_offset, from, from_offset, bytes), CUarray to, size_t to_offset, CUarray from,
             size_t from_offset, size_t bytes) {
  return row(stream, NULL, to, NULL, from, to_offset, from_offset, bytes, true);
}
STREAM_CALL(cuMemcpyHtoAAsync_v2, (to, offset, from, bytes, stream), CUarray to, size_t offset, const void *from, size_t bytes,
            CUstream stream) {
  return row(stream, NULL, to, from, NULL, offset, 0, bytes, false);
}
STREAM_CALL(cuMemcpyAtoHAsync_v2, (to, from, offset, bytes, stream), void *to, CUarray from, size_t offset, size_t bytes,
            CUstream stream) {
  return row(stream, to, NULL, NULL, from, 0, offset, bytes, false);
}
