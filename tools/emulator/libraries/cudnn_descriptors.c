/* cuDNN: descriptors of tensors and filters, which callers read again. */
#include "cudnn.h"

size_t element_bytes(int type) {
  static const unsigned char sizes[] = {4, 8, 2, 1, 4, 4, 1, 4, 32, 2, 8, 1, 1, 1}; /* float, double, half, ... */
  return type >= 0 && type < (int)sizeof sizes ? sizes[type] : 0;
}

void describe_matrix(struct shape *shape, int type, int rows, int columns) {
  *shape = (struct shape){.type = type, .count = 3, .sizes = {1, rows, columns}, .strides = {rows * columns, columns, 1}};
}

static void write_ints(int *to, const int *from, int asked, int count) {
  if (to) memcpy(to, from, (size_t)(asked < count ? asked : count) * sizeof *to);
}

static enum status create(struct shape **shape) {
  if (!shape) return BAD_PARAMETER;
  *shape = calloc(1, sizeof **shape);
  return SUCCESS;
}
EXPORT enum status cudnnCreateTensorDescriptor(struct shape **tensor) { return create(tensor); }
EXPORT enum status cudnnCreateFilterDescriptor(struct shape **filter) { return create(filter); }
EXPORT enum status cudnnDestroyTensorDescriptor(struct shape *tensor) { return free(tensor), SUCCESS; }
EXPORT enum status cudnnDestroyFilterDescriptor(struct shape *filter) { return free(filter), SUCCESS; }

EXPORT enum status cudnnSetTensorNdDescriptor(struct shape *tensor, int type, int count, const int *sizes, const int *strides) {
  if (!tensor || count < 0 || count > DIMENSIONS) return BAD_PARAMETER;
  *tensor = (struct shape){.type = type, .count = count};
  write_ints(tensor->sizes, sizes, count, count);
  write_ints(tensor->strides, strides, count, count);
  return SUCCESS;
}

EXPORT enum status cudnnGetTensorNdDescriptor(const struct shape *tensor, int asked, int *type, int *count, int *sizes,
                                              int *strides) {
  if (!tensor) return BAD_PARAMETER;
  write_int((uintptr_t)type, (uintptr_t)tensor->type);
  write_int((uintptr_t)count, (uintptr_t)tensor->count);
  write_ints(sizes, tensor->sizes, asked, tensor->count);
  write_ints(strides, tensor->strides, asked, tensor->count);
  return SUCCESS;
}

EXPORT enum status cudnnSetFilterNdDescriptor(struct shape *filter, int type, int format, int count, const int *sizes) {
  if (!filter || count < 0 || count > DIMENSIONS) return BAD_PARAMETER;
  *filter = (struct shape){.type = type, .format = format, .count = count};
  write_ints(filter->sizes, sizes, count, count);
  return SUCCESS;
}

EXPORT enum status cudnnGetFilterNdDescriptor(const struct shape *filter, int asked, int *type, int *format, int *count,
                                              int *sizes) {
  if (!filter) return BAD_PARAMETER;
  write_int((uintptr_t)type, (uintptr_t)filter->type);
  write_int((uintptr_t)format, (uintptr_t)filter->format);
  write_int((uintptr_t)count, (uintptr_t)filter->count);
  write_ints(sizes, filter->sizes, asked, filter->count);
  return SUCCESS;
}

/* Which part of the library's version: 0 the major number, 1 the minor one, 2 the patch. */
EXPORT enum status cudnnGetProperty(int part, int *value) {
  static const int parts[] = {cudnn_major, cudnn_minor, cudnn_patch};
  if (part < 0 || part > 2) return BAD_PARAMETER;
  write_int((uintptr_t)value, (uintptr_t)parts[part]);
  return SUCCESS;
}
