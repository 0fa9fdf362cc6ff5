/* Device memory: capacity, virtual memory management, copies, pointers, pinned memory, pools.  One device of 64 MiB. */
#define _GNU_SOURCE
#include "stubtest.h"
#include <sys/mman.h>

#define PAGE 4096

static const CUmemAllocationProp on_device = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                              .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
static const CUmemAccessDesc both_ways = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
static const CUmemAccessDesc read_only = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READ};

static void capacity(void) {
  size_t all = free_bytes();
  CUdeviceptr a = take(40 * MIB), b;
  CHECK_THAT(all == 64 * MIB && free_bytes() == 24 * MIB);
  IS(cuMemAlloc_v2(&b, 25 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
  b = take(24 * MIB);
  CHECK_THAT(free_bytes() == 0);
  OK(cuMemFree_v2(a));
  IS(cuMemFree_v2(a), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemFree_v2(b + 512), CUDA_ERROR_INVALID_VALUE);
  OK(cuMemFree_v2(b));
  OK(cuMemFree_v2(0));
  IS(cuMemAlloc_v2(&b, 0), CUDA_ERROR_INVALID_VALUE);
  CHECK_THAT(free_bytes() == all);
}

static void is_old(CUdeviceptr address, size_t bytes) {
  unsigned char seen[2];
  OK(cuMemcpyDtoH_v2(&seen[0], address, 1));
  OK(cuMemcpyDtoH_v2(&seen[1], address + bytes - 1, 1));
  CHECK_THAT(seen[0] == 0xa5 && seen[1] == 0xa5);
}

static void new_memory_has_old_contents(void) {
  CUmemGenericAllocationHandle handle;
  CUdeviceptr base, plain = take(3 * MIB), pooled;
  OK(cuMemCreate(&handle, 4 * MIB, &on_device, 0));
  OK(cuMemAddressReserve(&base, 4 * MIB, 0, 0, 0));
  OK(cuMemMap(base, 4 * MIB, 0, handle, 0));
  OK(cuMemSetAccess(base, 4 * MIB, &both_ways, 1));
  OK(cuMemAllocAsync(&pooled, MIB, NULL));
  is_old(plain, 3 * MIB);
  is_old(base, 4 * MIB);
  is_old(pooled, MIB);
  OK(cuMemFree_v2(plain));
  OK(cuMemFree_v2(pooled));
  OK(cuMemUnmap(base, 4 * MIB));
  OK(cuMemRelease(handle));
  OK(cuMemAddressFree(base, 4 * MIB));
}

static void virtual_memory(void) {
  CUmemGenericAllocationHandle handle, again;
  CUdeviceptr base;
  size_t granularity;
  unsigned long long access;
  OK(cuMemGetAllocationGranularity(&granularity, &on_device, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  CHECK_THAT(granularity == 2 * MIB);
  IS(cuMemCreate(&handle, MIB, &on_device, 0), CUDA_ERROR_INVALID_VALUE);
  OK(cuMemCreate(&handle, 4 * MIB, &on_device, 0));
  CHECK_THAT(free_bytes() == 60 * MIB);
  OK(cuMemAddressReserve(&base, 16 * MIB, 8 * MIB, 0, 0));
  CHECK_THAT(base % (8 * MIB) == 0);
  IS(cuMemMap(base, 4 * MIB, 2 * MIB, handle, 0), CUDA_ERROR_INVALID_VALUE); /* offsets are not offered yet */
  IS(cuMemMap(base + 14 * MIB, 4 * MIB, 0, handle, 0), CUDA_ERROR_INVALID_VALUE); /* beyond the reservation */
  IS(cuMemSetAccess(base, 4 * MIB, &both_ways, 1), CUDA_ERROR_INVALID_VALUE);
  OK(cuMemMap(base, 4 * MIB, 0, handle, 0));
  IS(cuMemMap(base, 4 * MIB, 0, handle, 0), CUDA_ERROR_INVALID_VALUE); /* mapped already */
  IS(cuMemsetD8_v2(base, 1, 8), CUDA_ERROR_INVALID_VALUE); /* no access yet */
  OK(cuMemSetAccess(base, 4 * MIB, &both_ways, 1));
  OK(cuMemMap(base + 8 * MIB, 4 * MIB, 0, handle, 0)); /* the same memory twice */
  OK(cuMemSetAccess(base + 8 * MIB, 4 * MIB, &read_only, 1));
  OK(cuMemGetAccess(&access, &both_ways.location, base + 8 * MIB));
  CHECK_THAT(access == CU_MEM_ACCESS_FLAGS_PROT_READ);
  OK(cuMemsetD32_v2(base, 77, 4));
  uint32_t seen;
  OK(cuMemcpyDtoH_v2(&seen, base + 8 * MIB + 4, 4));
  CHECK_THAT(seen == 77);
  IS(cuMemsetD32_v2(base + 8 * MIB, 1, 1), CUDA_ERROR_INVALID_VALUE);
  OK(cuMemRetainAllocationHandle(&again, (void *)(base + 3 * MIB)));
  CHECK_THAT(again == handle);
  OK(cuMemRelease(again));
  OK(cuMemRelease(handle));
  IS(cuMemRelease(handle), CUDA_ERROR_INVALID_VALUE);
  CHECK_THAT(free_bytes() == 60 * MIB); /* mapped still */
  IS(cuMemAddressFree(base, 16 * MIB), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemUnmap(base, 2 * MIB), CUDA_ERROR_INVALID_VALUE);
  OK(cuMemUnmap(base, 4 * MIB));
  OK(cuMemUnmap(base + 8 * MIB, 4 * MIB));
  CHECK_THAT(free_bytes() == 64 * MIB);
  IS(cuMemAddressFree(base, 8 * MIB), CUDA_ERROR_INVALID_VALUE);
  OK(cuMemAddressFree(base, 16 * MIB));
}

static void copies(void) {
  CUdeviceptr a = take(MIB), b = take(MIB);
  unsigned char out[64], in[64];
  for (unsigned i = 0; i < 64; i++) in[i] = (unsigned char)(i * 3);
  OK(cuMemcpyHtoD_v2(a, in, 64));
  OK(cuMemcpyDtoD_v2(b, a, 64));
  OK(cuMemcpyDtoH_v2(out, b, 64));
  CHECK_THAT(!memcmp(in, out, 64));
  IS(cuMemcpyHtoD_v2((CUdeviceptr)out, in, 64), CUDA_ERROR_INVALID_VALUE);
  IS(cuMemcpyHtoD_v2(a + MIB - 32, in, 64), CUDA_ERROR_INVALID_VALUE);
  /* a box of 4 x 2 bytes out of rows of 16 */
  CUDA_MEMCPY2D box = {.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = a, .srcPitch = 16, .srcXInBytes = 2, .srcY = 1,
                       .dstMemoryType = CU_MEMORYTYPE_HOST, .dstHost = out, .dstPitch = 4, .WidthInBytes = 4, .Height = 2};
  OK(cuMemcpy2D_v2(&box));
  CHECK_THAT(!memcmp(out, in + 18, 4) && !memcmp(out + 4, in + 34, 4));
  OK(cuMemsetD2D16_v2(a, 16, 0x0102, 2, 2));
  OK(cuMemcpyDtoH_v2(out, a, 32));
  CHECK_THAT(out[0] == 2 && out[3] == 1 && out[4] == in[4] && out[16] == 2 && out[20] == in[20]);
  CUmemcpyAttributes in_order = {.srcAccessOrder = CU_MEMCPY_SRC_ACCESS_ORDER_STREAM};
  CUstream stream;
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  OK(cuMemcpyBatchAsync_v2((CUdeviceptr[]){b, b + 8}, (CUdeviceptr[]){(CUdeviceptr)in, (CUdeviceptr)in + 8},
                           (size_t[]){8, 8}, 2, &in_order, (size_t[]){0}, 1, stream));
  CUDA_MEMCPY3D_BATCH_OP op = {.src = {CU_MEMCPY_OPERAND_TYPE_POINTER, {.ptr = {b, 16, 1, {0}}}},
                               .dst = {CU_MEMCPY_OPERAND_TYPE_POINTER, {.ptr = {b + 32, 16, 1, {0}}}}, .extent = {16, 1, 1}};
  OK(cuMemcpy3DBatchAsync_v2(1, &op, 0, stream));
  OK(cuMemcpyDtoHAsync_v2(out, b + 32, 16, stream));
  CHECK_THAT(!memcmp(in, out, 16));
  IS(cuMemcpyBatchAsync_v2(&a, &b, (size_t[]){8}, 1, &in_order, (size_t[]){0}, 1, NULL), CUDA_ERROR_INVALID_VALUE);
  OK(cuStreamDestroy_v2(stream));
  CUmipmappedArray levels;
  CUarray level;
  CUDA_ARRAY3D_DESCRIPTOR top = {64, 64, 0, CU_AD_FORMAT_HALF, 4, 0}, small;
  OK(cuMipmappedArrayCreate(&levels, &top, 3));
  OK(cuMipmappedArrayGetLevel(&level, levels, 2));
  OK(cuArray3DGetDescriptor_v2(&small, level));
  CHECK_THAT(small.Width == 16 && small.Height == 16);
  OK(cuMipmappedArrayDestroy(levels));
  CUarray array;
  CUDA_ARRAY_DESCRIPTOR shape = {16, 2, CU_AD_FORMAT_FLOAT, 1};
  size_t before = free_bytes();
  OK(cuArrayCreate_v2(&array, &shape));
  CHECK_THAT(free_bytes() < before);
  OK(cuMemcpyHtoA_v2(array, 64, in, 64));
  OK(cuMemcpyAtoH_v2(out, array, 64, 64));
  CHECK_THAT(!memcmp(in, out, 64));
  IS(cuMemcpyHtoA_v2(array, 65, in, 64), CUDA_ERROR_INVALID_VALUE);
  OK(cuArrayDestroy(array));
  OK(cuMemFree_v2(a));
  OK(cuMemFree_v2(b));
}

static void pointers(void) {
  CUdeviceptr a = take(3 * MIB), base;
  size_t size;
  CUmemorytype type;
  CUcontext owner;
  OK(cuMemGetAddressRange_v2(&base, &size, a + MIB));
  CHECK_THAT(base == a && size == 3 * MIB);
  OK(cuMemGetAddressRange_v2(NULL, &size, a));
  OK(cuMemGetAddressRange_v2(&base, NULL, a));
  OK(cuMemGetAddressRange_v2(NULL, NULL, a));
  OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, a + 5));
  OK(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, a));
  CHECK_THAT(type == CU_MEMORYTYPE_DEVICE && owner == context);
  IS(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)&type), CUDA_ERROR_INVALID_VALUE);
  OK(cuPointerGetAttributes(1, (CUpointer_attribute[]){CU_POINTER_ATTRIBUTE_MEMORY_TYPE}, (void *[]){&type}, (CUdeviceptr)&type));
  CHECK_THAT(type == 0);
  OK(cuMemFree_v2(a));
}

static void pinned(void) {
  void *memory;
  char *mine = malloc(8192);
  CUdeviceptr seen;
  unsigned char there;
  OK(cuMemHostAlloc(&memory, 4096, CU_MEMHOSTALLOC_PORTABLE));
  CHECK_THAT(!mincore(memory, 4096, &there) && there & 1);
  OK(cuMemHostRegister_v2(mine, 8192, 0));
  CHECK_THAT(stub_pinned_bytes() == 4096 + 8192);
  IS(cuMemHostRegister_v2(mine + 4096, 4096, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  OK(cuMemHostGetDevicePointer_v2(&seen, mine + 8, 0));
  CHECK_THAT(seen == (CUdeviceptr)(mine + 8));
  OK(fill(NULL, seen, 5, 2)); /* the device reaches it */
  OK(cuCtxSynchronize());
  CHECK_THAT(((uint32_t *)(mine + 8))[1] == 5);
  OK(cuMemHostUnregister(mine));
  IS(cuMemHostUnregister(mine), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
  OK(cuMemFreeHost(memory));
  CHECK_THAT(stub_pinned_bytes() == 0);
  free(mine);
}

static char *mapped(int file, int access, int kind) {
  char *at = mmap(NULL, 2 * PAGE, access, kind, file, 0);
  CHECK_THAT(at != MAP_FAILED);
  return at;
}

/* The file's first byte is 1 before, and 2 after. */
static char seen_after(int file, char *at, unsigned flags) {
  CHECK_THAT(pwrite(file, "\1", 1, 0) == 1 && at[0] == 1);
  OK(cuMemHostRegister_v2(at, 2 * PAGE, flags));
  IS(cuMemsetD8_v2((CUdeviceptr)at + PAGE, 1, 1), flags ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS);
  CHECK_THAT(pwrite(file, "\2", 1, 0) == 1);
  OK(cuMemHostUnregister(at));
  return at[0];
}

/* A pin is for long, so pages of a private mapping become the process's own; those of a shared one are the file's. */
static void pinned_files(void) {
  int file = memfd_create("pinned", MFD_CLOEXEC);
  CHECK_THAT(!ftruncate(file, 2 * PAGE));
  const int read = PROT_READ, both = PROT_READ | PROT_WRITE;
  CHECK_THAT(seen_after(file, mapped(file, read, MAP_SHARED), CU_MEMHOSTREGISTER_READ_ONLY) == 2);
  CHECK_THAT(seen_after(file, mapped(file, both, MAP_SHARED), 0) == 2);
  CHECK_THAT(seen_after(file, mapped(file, read, MAP_PRIVATE), CU_MEMHOSTREGISTER_READ_ONLY) == 1);
  CHECK_THAT(seen_after(file, mapped(file, both, MAP_PRIVATE), 0) == 1);
  close(file);
}

/* Whatever cannot be pinned for the access that is asked for is refused. */
static void unpinnable(void) {
  int file = memfd_create("pinned", MFD_CLOEXEC);
  CHECK_THAT(!ftruncate(file, PAGE));
  for (int kind = MAP_SHARED; kind <= MAP_PRIVATE; kind++) {
    IS(cuMemHostRegister_v2(mapped(file, PROT_READ, kind), PAGE, 0), CUDA_ERROR_INVALID_VALUE);
    IS(cuMemHostRegister_v2(mapped(file, PROT_NONE, kind), PAGE, 8), CUDA_ERROR_INVALID_VALUE);
    IS(cuMemHostRegister_v2(mapped(file, PROT_READ, kind), 2 * PAGE, 8), CUDA_ERROR_INVALID_VALUE); /* the file ends */
  }
  char *gone = mapped(file, PROT_READ | PROT_WRITE, MAP_SHARED);
  munmap(gone + PAGE, PAGE);
  IS(cuMemHostRegister_v2(gone, 2 * PAGE, 0), CUDA_ERROR_INVALID_VALUE);
  close(file);
  CHECK_THAT(stub_pinned_bytes() == 0);
}

static void pool(void) {
  CUstream stream;
  CUmemoryPool of_device;
  CUdeviceptr a, b;
  uint64_t reserved, all = UINT64_MAX;
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  OK(cuDeviceGetMemPool(&of_device, 0));
  OK(cuMemPoolSetAttribute(of_device, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all));
  OK(cuMemAllocAsync(&a, 4 * MIB, stream));
  OK(fill(stream, a, 1, 4));
  OK(cuMemFreeAsync(a, stream));
  OK(cuStreamSynchronize(stream));
  CHECK_THAT(free_bytes() == 60 * MIB);
  OK(cuMemAllocAsync(&b, 4 * MIB, stream));
  CHECK_THAT(a == b); /* from the pool */
  OK(cuMemFreeAsync(b, stream));
  IS((cuStreamSynchronize(stream), cuMemFreeAsync(b, stream)), CUDA_ERROR_INVALID_VALUE);
  OK(cuMemPoolGetAttribute(of_device, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved));
  CHECK_THAT(reserved == 4 * MIB);
  OK(cuMemPoolTrimTo(of_device, 0));
  CHECK_THAT(free_bytes() == 64 * MIB);
  all = 0;
  OK(cuMemPoolSetAttribute(of_device, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all));
  OK(cuMemAllocAsync(&a, 4 * MIB, stream));
  OK(cuMemFree_v2(a)); /* allowed too */
  CHECK_THAT(free_bytes() == 64 * MIB);
  OK(cuMemAllocAsync(&a, 40 * MIB, stream));
  OK(spin(stream, 20000));
  OK(cuMemFreeAsync(a, stream)); /* not yet; what comes after it in its stream may have the memory all the same */
  OK(cuMemAllocAsync(&b, 60 * MIB, stream));
  OK(cuMemFreeAsync(b, stream));
  IS(cuMemAllocAsync(&a, 65 * MIB, stream), CUDA_ERROR_OUT_OF_MEMORY);
  OK(cuStreamSynchronize(stream));
  CHECK_THAT(free_bytes() == 64 * MIB);
  OK(cuStreamDestroy_v2(stream));
}

static void contexts(void) {
  CUcontext second, popped;
  CUdeviceptr a;
  OK(cuCtxCreate_v2(&second, 0, 0));
  a = take(8 * MIB);
  CHECK_THAT(free_bytes() == 56 * MIB);
  OK(cuCtxPopCurrent_v2(&popped));
  CHECK_THAT(popped == second);
  OK(cuCtxDestroy_v2(second));
  CHECK_THAT(free_bytes() == 64 * MIB); /* its memory went with it */
  IS(cuMemFree_v2(a), CUDA_ERROR_INVALID_VALUE);
  IS(cuCtxSetCurrent(second), CUDA_ERROR_INVALID_CONTEXT);
  OK(cuCtxSetCurrent(context));
}

static void half_an_answer(void) {
  size_t bytes = 0;
  OK(cuMemGetInfo_v2(NULL, &bytes));
  CHECK_THAT(bytes == 64 * MIB);
  OK(cuMemGetInfo_v2(&bytes, NULL));
  CHECK_THAT(bytes == free_bytes());
}

/* Nor do kernels and copies that are under way keep it: what comes to it later breaks the context. */
static void unmapping_does_not_wait(void (*use)(CUstream, CUdeviceptr)) {
  enum { BYTES = 16 * MIB };
  CUmemGenericAllocationHandle handle;
  CUcontext broken;
  CUdeviceptr base;
  CUstream stream;
  OK(cuCtxCreate_v2(&broken, 0, 0));
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  OK(cuMemCreate(&handle, BYTES, &on_device, 0));
  OK(cuMemAddressReserve(&base, BYTES, 0, 0, 0));
  OK(cuMemMap(base, BYTES, 0, handle, 0));
  OK(cuMemSetAccess(base, BYTES, &both_ways, 1));
  for (int i = 0; i < 500; i++) use(stream, base);
  while (*(volatile unsigned char *)base == 0xa5) continue; /* the first one is under way */
  OK(cuMemUnmap(base, BYTES));
  IS(cuStreamSynchronize(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
  IS(cuStreamQuery(stream), CUDA_ERROR_ILLEGAL_ADDRESS);
  IS(spin(stream, 1), CUDA_ERROR_ILLEGAL_ADDRESS);
  IS(cuMemAlloc_v2(&(CUdeviceptr){0}, MIB), CUDA_ERROR_ILLEGAL_ADDRESS);
  IS(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
  OK(cuMemRelease(handle));
  OK(cuMemAddressFree(base, BYTES));
  OK(cuCtxDestroy_v2(broken));
  OK(cuCtxSetCurrent(context));
  OK(cuCtxSynchronize()); /* no other context is affected */
}
static void by_kernel(CUstream stream, CUdeviceptr base) { OK(mix(stream, base, 2 * MIB, 1)); }
static void by_fill(CUstream stream, CUdeviceptr base) { OK(cuMemsetD8Async(base, 1, 16 * MIB, stream)); }
static void by_copy(CUstream stream, CUdeviceptr base) {
  OK(fill(stream, base, 1, 4)); /* says that copies are next */
  OK(cuMemcpyDtoDAsync_v2(base + 8 * MIB, base, 8 * MIB, stream));
}

int main(void) {
  size_t unused;
  IS(cuMemGetInfo_v2(&unused, &unused), CUDA_ERROR_NOT_INITIALIZED);
  begin();
  capacity();
  half_an_answer();
  new_memory_has_old_contents();
  virtual_memory();
  copies();
  pointers();
  pinned();
  pinned_files();
  unpinnable();
  pool();
  contexts();
  unmapping_does_not_wait(by_kernel);
  unmapping_does_not_wait(by_fill);
  unmapping_does_not_wait(by_copy);
  /* what breaks a context breaks it for good */
  OK(fill(NULL, 4096, 1, 1));
  IS(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
  IS(cuMemAlloc_v2(&(CUdeviceptr){0}, MIB), CUDA_ERROR_ILLEGAL_ADDRESS);
  return 0;
}
