/* What kernels need, and how many blocks of one fit on a multiprocessor.  Attributes have the driver's numbers. */
#include "driver/extra.h"
#include "internal.h"

enum { /* of the driver, those that can only be read */
  MAX_THREADS_PER_BLOCK = 0, SHARED_BYTES = 1, CONST_BYTES = 2, LOCAL_BYTES = 3, REGISTERS = 4, PTX_VERSION = 5,
  BINARY_VERSION = 6, CACHE_MODE_CA = 7, MAX_DYNAMIC_SHARED_BYTES = 8, SHARED_CARVEOUT = 9, CLUSTER_MUST_BE_SET = 10,
  CLUSTER_WIDTH = 11, CLUSTER_HEIGHT = 12, CLUSTER_DEPTH = 13, LARGE_CLUSTER_ALLOWED = 14, CLUSTER_SCHEDULING = 15
};

static int function_of(const void *host, CUfunction *function) {
  CUkernel kernel;
  int result = runtime_kernel(host, &kernel);
  return result ? result : (int)cuKernelGetFunction(function, kernel);
}

static int attribute_of(CUfunction function, int attribute) {
  int value = 0;
  cuFuncGetAttribute(&value, (CUfunction_attribute)attribute, function);
  return value;
}
static int describe(struct cudaFuncAttributes *attributes, const void *host) {
  CUfunction function;
  int result = attributes ? function_of(host, &function) : cudaErrorInvalidValue;
  if (result) return result;
  *attributes = (struct cudaFuncAttributes){
    .sharedSizeBytes = (size_t)attribute_of(function, SHARED_BYTES),
    .constSizeBytes = (size_t)attribute_of(function, CONST_BYTES),
    .localSizeBytes = (size_t)attribute_of(function, LOCAL_BYTES),
    .maxThreadsPerBlock = attribute_of(function, MAX_THREADS_PER_BLOCK),
    .numRegs = attribute_of(function, REGISTERS),
    .ptxVersion = attribute_of(function, PTX_VERSION),
    .binaryVersion = attribute_of(function, BINARY_VERSION),
    .cacheModeCA = attribute_of(function, CACHE_MODE_CA),
    .maxDynamicSharedSizeBytes = attribute_of(function, MAX_DYNAMIC_SHARED_BYTES),
    .preferredShmemCarveout = attribute_of(function, SHARED_CARVEOUT),
    .clusterDimMustBeSet = attribute_of(function, CLUSTER_MUST_BE_SET),
    .requiredClusterWidth = attribute_of(function, CLUSTER_WIDTH),
    .requiredClusterHeight = attribute_of(function, CLUSTER_HEIGHT),
    .requiredClusterDepth = attribute_of(function, CLUSTER_DEPTH),
    .clusterSchedulingPolicyPreference = attribute_of(function, CLUSTER_SCHEDULING),
    .nonPortableClusterSizeAllowed = attribute_of(function, LARGE_CLUSTER_ALLOWED)};
  return cudaSuccess;
}
cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attributes, const void *function) {
  WITH_CONTEXT(describe(attributes, function));
}

static bool may_be_set(int attribute) { return attribute >= MAX_DYNAMIC_SHARED_BYTES && attribute <= CLUSTER_SCHEDULING; }
static int change(const void *host, int attribute, int value) {
  CUfunction function;
  int result = may_be_set(attribute) ? function_of(host, &function) : cudaErrorInvalidValue;
  return result ? result : (int)cuFuncSetAttribute(function, (CUfunction_attribute)attribute, value);
}
cudaError_t cudaFuncSetAttribute(const void *function, enum cudaFuncAttribute attribute, int value) {
  WITH_CONTEXT(change(function, (int)attribute, value));
}

static int change_kernel(CUkernel kernel, int attribute, int value, int device) {
  CUdevice same;
  int result = may_be_set(attribute) ? (int)cuDeviceGet(&same, device) : cudaErrorInvalidValue;
  return result ? result : (int)cuKernelSetAttribute((CUfunction_attribute)attribute, value, kernel, same);
}
cudaError_t cudaKernelSetAttributeForDevice(cudaKernel_t kernel, enum cudaFuncAttribute attribute, int value, int device) {
  WITH_CONTEXT(change_kernel(kernel, (int)attribute, value, device));
}

static int occupancy(int *blocks, const void *host, int block_size, size_t shared_bytes, unsigned int flags) {
  CUfunction function;
  int result = function_of(host, &function);
  if (result) return result;
  return cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, block_size, shared_bytes, flags);
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, const void *function, int block_size,
                                                                   size_t shared_bytes, unsigned int flags) {
  WITH_CONTEXT(occupancy(blocks, function, block_size, shared_bytes, flags));
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *function, int block_size,
                                                          size_t shared_bytes) {
  WITH_CONTEXT(occupancy(blocks, function, block_size, shared_bytes, 0));
}
