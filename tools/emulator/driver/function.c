/* Questions about functions: names, attributes, how many blocks run at once.  No kernel needs registers, shared or local
 * memory here, so that the device's limits alone count. */
#include "kernel.h"
#include "extra.h"

enum { WARP = 32, REGISTERS = 32, MOST_THREADS = 1024 };

CUresult cuFuncGetModule(CUmodule *module, CUfunction function) {
  ENTER(cuFuncGetModule);
  if (!module || !function) return CUDA_ERROR_INVALID_VALUE;
  *module = function->module;
  return CUDA_SUCCESS;
}
CUresult cuFuncGetName(const char **name, CUfunction function) {
  ENTER(cuFuncGetName);
  if (!name || !function) return CUDA_ERROR_INVALID_VALUE;
  *name = function->name;
  return CUDA_SUCCESS;
}
FORWARD(cuKernelGetName, cuFuncGetName, (name, (CUfunction)kernel), const char **name, CUkernel kernel)
FORWARD(cuKernelGetLibrary, cuFuncGetModule, ((CUmodule *)library, (CUfunction)kernel), CUlibrary *library, CUkernel kernel)
CUresult cuKernelGetFunction(CUfunction *function, CUkernel kernel) {
  ENTER(cuKernelGetFunction);
  if (!function || !kernel) return CUDA_ERROR_INVALID_VALUE;
  *function = (CUfunction)kernel;
  return CUDA_SUCCESS;
}

static int capability(void) {
  return 10 * stub_attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) +
         stub_attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
}

CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction function) {
  ENTER(cuFuncGetAttribute);
  if (!value || (int)attribute > CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE) return CUDA_ERROR_INVALID_VALUE;
  if (!function) return CUDA_ERROR_INVALID_HANDLE;
  switch ((int)attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *value = MOST_THREADS; break;
    case CU_FUNC_ATTRIBUTE_NUM_REGS: *value = REGISTERS; break;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION: *value = capability(); break;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: *value = function->dynamic_shared; break;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT: *value = function->carveout; break;
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED: *value = function->nonportable_cluster; break;
    default: *value = 0;
  }
  return CUDA_SUCCESS;
}
CUresult cuKernelGetAttribute(int *value, CUfunction_attribute attribute, CUkernel kernel, CUdevice device) {
  ENTER(cuKernelGetAttribute);
  (void)device;
  return cuFuncGetAttribute(value, attribute, (CUfunction)kernel);
}

CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
  ENTER(cuFuncSetAttribute);
  if (!function) return CUDA_ERROR_INVALID_HANDLE;
  switch ((int)attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      if (value < 0 || value > stub_attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN))
        return CUDA_ERROR_INVALID_VALUE;
      function->dynamic_shared = value;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      if (value < -1 || value > 100) return CUDA_ERROR_INVALID_VALUE; /* percent; -1: as the driver likes */
      function->carveout = value;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED: function->nonportable_cluster = value; return CUDA_SUCCESS;
    default: return CUDA_ERROR_INVALID_VALUE;
  }
}
CUresult cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel kernel, CUdevice device) {
  ENTER(cuKernelSetAttribute);
  (void)device;
  return cuFuncSetAttribute((CUfunction)kernel, attribute, value);
}

CUresult cuFuncSetCacheConfig(CUfunction function, CUfunc_cache config) {
  ENTER(cuFuncSetCacheConfig);
  (void)config;
  return function ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}
CUresult cuKernelSetCacheConfig(CUkernel kernel, CUfunc_cache config, CUdevice device) {
  ENTER(cuKernelSetCacheConfig);
  (void)device;
  return cuFuncSetCacheConfig((CUfunction)kernel, config);
}

static int least(int a, int b) { return a < b ? a : b; }

/* Blocks of that size that a multiprocessor holds at once: the least that threads, blocks and shared memory allow. */
static int resident(int block_size, size_t shared_bytes) {
  int rounded = (int)stub_round((size_t)block_size, WARP);
  int blocks = least(stub_attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR) / rounded,
                     stub_attribute(CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR));
  if (!shared_bytes) return blocks;
  if (shared_bytes > (size_t)stub_attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)) return 0;
  size_t each = shared_bytes + (size_t)stub_attribute(CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK);
  return least(blocks, (int)((size_t)stub_attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR) / each));
}

static CUresult occupancy(int *blocks, CUfunction function, int block_size, size_t shared_bytes) {
  if (!blocks || block_size <= 0) return CUDA_ERROR_INVALID_VALUE;
  if (!function) return CUDA_ERROR_INVALID_HANDLE;
  *blocks = block_size > MOST_THREADS ? 0 : resident(block_size, shared_bytes);
  return CUDA_SUCCESS;
}
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction function, int block_size, size_t shared_bytes) {
  ENTER(cuOccupancyMaxActiveBlocksPerMultiprocessor);
  return occupancy(blocks, function, block_size, shared_bytes);
}
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks, CUfunction function, int block_size,
                                                             size_t shared_bytes, unsigned int flags) {
  ENTER(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags);
  return flags > 1 ? CUDA_ERROR_INVALID_VALUE : occupancy(blocks, function, block_size, shared_bytes);
}

/* The largest block that lets a multiprocessor run the most threads; as many blocks as all of them hold. */
CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int *grid_size, int *block_size, CUfunction function,
                                                   CUoccupancyB2DSize shared_bytes_of, size_t shared_bytes, int limit,
                                                   unsigned int flags) {
  ENTER(cuOccupancyMaxPotentialBlockSizeWithFlags);
  if (!grid_size || !block_size || flags > 1) return CUDA_ERROR_INVALID_VALUE;
  if (!function) return CUDA_ERROR_INVALID_HANDLE;
  int most = 0, size = limit > 0 ? least(limit, MOST_THREADS) : MOST_THREADS;
  for (; size > 0; size = size % WARP ? size - size % WARP : size - WARP) {
    int blocks = resident(size, shared_bytes_of ? shared_bytes_of(size) : shared_bytes);
    if (blocks * size <= most) continue;
    most = blocks * size;
    *block_size = size;
    *grid_size = blocks * stub_attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  }
  return most ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
FORWARD(cuOccupancyMaxPotentialBlockSize, cuOccupancyMaxPotentialBlockSizeWithFlags,
        (grid_size, block_size, function, shared_bytes_of, shared_bytes, limit, 0), int *grid_size, int *block_size,
        CUfunction function, CUoccupancyB2DSize shared_bytes_of, size_t shared_bytes, int limit)

CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t *bytes, CUfunction function, int blocks, int block_size) {
  ENTER(cuOccupancyAvailableDynamicSMemPerBlock);
  if (!bytes || blocks <= 0 || block_size <= 0 || block_size > MOST_THREADS) return CUDA_ERROR_INVALID_VALUE;
  if (!function) return CUDA_ERROR_INVALID_HANDLE;
  if (blocks > resident(block_size, 0)) return CUDA_ERROR_INVALID_VALUE;
  int each = stub_attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR) / blocks -
             stub_attribute(CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK);
  *bytes = (size_t)least(each, stub_attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN));
  return CUDA_SUCCESS;
}
