/* Arrays and mipmapped arrays: device memory that is counted; nothing samples them. */
#include "array.h"

struct CUmipmappedArray_st { unsigned levels; struct CUarray_st level[16]; char *base; };

static size_t texel(const CUDA_ARRAY3D_DESCRIPTOR *descriptor) {
  size_t size;
  switch (descriptor->Format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8: size = 1; break;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF: size = 2; break;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT: size = 4; break;
    default: return 0;
  }
  return descriptor->NumChannels == 3 ? 0 : size * descriptor->NumChannels;
}

static struct CUarray_st shape(const CUDA_ARRAY3D_DESCRIPTOR *descriptor) {
  struct CUarray_st array = {.descriptor = *descriptor, .pitch = descriptor->Width * texel(descriptor)};
  array.rows = descriptor->Height ? descriptor->Height : 1;
  array.bytes = array.pitch * array.rows * (descriptor->Depth ? descriptor->Depth : 1);
  return array;
}

static CUresult take(size_t bytes, char **base) {
  CUcontext context;
  struct stub_range *range;
  CUresult result = stub_current(&context);
  if (!result) result = stub_unsafe();
  if (!result) result = stub_device_alloc(context, STUB_ARRAY, bytes, &range);
  if (!result) *base = range->base;
  return result;
}

static void give_back(const char *base) {
  stub_ranges_lock();
  struct stub_range *range = stub_range_find(base);
  if (range) stub_device_free(range); /* else its context has gone, and the memory with it */
  stub_ranges_unlock();
}

CUresult cuArray3DCreate_v2(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *descriptor) {
  ENTER(cuArray3DCreate_v2);
  if (!array || !descriptor) return CUDA_ERROR_INVALID_VALUE;
  struct CUarray_st made = shape(descriptor);
  if (!made.bytes) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = take(made.bytes, &made.base);
  if (result) return result;
  *array = malloc(sizeof made);
  **array = made;
  return CUDA_SUCCESS;
}
CUresult cuArrayCreate_v2(CUarray *array, const CUDA_ARRAY_DESCRIPTOR *descriptor) {
  ENTER(cuArrayCreate_v2);
  if (!descriptor) return CUDA_ERROR_INVALID_VALUE;
  CUDA_ARRAY3D_DESCRIPTOR flat = {.Width = descriptor->Width, .Height = descriptor->Height, .Format = descriptor->Format,
                                  .NumChannels = descriptor->NumChannels};
  return cuArray3DCreate_v2(array, &flat);
}
CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR *descriptor, CUarray array) {
  ENTER(cuArray3DGetDescriptor_v2);
  if (!descriptor || !array) return CUDA_ERROR_INVALID_VALUE;
  *descriptor = array->descriptor;
  return CUDA_SUCCESS;
}
CUresult cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR *descriptor, CUarray array) {
  ENTER(cuArrayGetDescriptor_v2);
  if (!descriptor || !array) return CUDA_ERROR_INVALID_VALUE;
  *descriptor = (CUDA_ARRAY_DESCRIPTOR){array->descriptor.Width, array->descriptor.Height, array->descriptor.Format,
                                        array->descriptor.NumChannels};
  return CUDA_SUCCESS;
}
CUresult cuArrayDestroy(CUarray array) {
  ENTER(cuArrayDestroy);
  if (!array || array->level) return CUDA_ERROR_INVALID_HANDLE;
  give_back(array->base);
  free(array);
  return CUDA_SUCCESS;
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray *array, const CUDA_ARRAY3D_DESCRIPTOR *descriptor, unsigned int levels) {
  ENTER(cuMipmappedArrayCreate);
  if (!array || !descriptor || !levels || levels > 16) return CUDA_ERROR_INVALID_VALUE;
  CUDA_ARRAY3D_DESCRIPTOR at = *descriptor;
  size_t bytes = 0;
  CUmipmappedArray made = calloc(1, sizeof *made);
  for (; made->levels < levels; made->levels++) {
    made->level[made->levels] = shape(&at);
    made->level[made->levels].level = true;
    bytes += made->level[made->levels].bytes;
    at.Width = at.Width > 1 ? at.Width / 2 : 1;
    at.Height = at.Height > 1 ? at.Height / 2 : at.Height;
    at.Depth = at.Depth > 1 ? at.Depth / 2 : at.Depth;
  }
  CUresult result = bytes ? take(bytes, &made->base) : CUDA_ERROR_INVALID_VALUE;
  if (result) return free(made), result;
  char *base = made->base;
  for (unsigned i = 0; i < levels; base += made->level[i++].bytes) made->level[i].base = base;
  *array = made;
  return CUDA_SUCCESS;
}
CUresult cuMipmappedArrayGetLevel(CUarray *level_array, CUmipmappedArray array, unsigned int level) {
  ENTER(cuMipmappedArrayGetLevel);
  if (!level_array || !array || level >= array->levels) return CUDA_ERROR_INVALID_VALUE;
  *level_array = &array->level[level];
  return CUDA_SUCCESS;
}
CUresult cuMipmappedArrayDestroy(CUmipmappedArray array) {
  ENTER(cuMipmappedArrayDestroy);
  if (!array) return CUDA_ERROR_INVALID_HANDLE;
  give_back(array->base);
  free(array);
  return CUDA_SUCCESS;
}
