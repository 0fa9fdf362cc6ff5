/* Launches, and the configuration that a <<<...>>> leaves for the function that it calls. */
#include "internal.h"

struct configuration { dim3 grid, block; size_t shared_bytes; CUstream stream; };
enum { NESTED = 16 }; /* arguments of a launch may contain launches */
static __thread struct configuration pushed[NESTED];
static __thread int depth;

unsigned int __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes, struct CUstream_st *stream) {
  if (depth == NESTED) return runtime_error(cudaErrorInvalidConfiguration);
  pushed[depth++] = (struct configuration){grid, block, shared_bytes, stream};
  return cudaSuccess;
}
cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared_bytes, void *stream) {
  if (!depth) return runtime_error(cudaErrorMissingConfiguration);
  const struct configuration *top = &pushed[--depth];
  *grid = top->grid;
  *block = top->block;
  *shared_bytes = top->shared_bytes;
  *(CUstream *)stream = top->stream;
  return cudaSuccess;
}

/* The limits of every device so far. */
static bool possible(dim3 grid, dim3 block) {
  enum { THREADS = 1024, BLOCK_Z = 64, GRID_X = 0x7fffffff, GRID_YZ = 0xffff };
  return grid.x && grid.x <= GRID_X && grid.y && grid.y <= GRID_YZ && grid.z && grid.z <= GRID_YZ && block.x &&
         block.x <= THREADS && block.y && block.y <= THREADS && block.z && block.z <= BLOCK_Z &&
         block.x * block.y * block.z <= THREADS;
}

/* The driver takes kernels in place of functions. */
static int launch(CUkernel kernel, dim3 grid, dim3 block, void **args, size_t shared_bytes, CUstream stream) {
  if (!kernel) return cudaErrorInvalidDeviceFunction;
  if (!possible(grid, block)) return cudaErrorInvalidConfiguration;
  return cuLaunchKernel((CUfunction)kernel, grid.x, grid.y, grid.z, block.x, block.y, block.z, (unsigned)shared_bytes, stream,
                        args, NULL);
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **args, size_t shared_bytes,
                               cudaStream_t stream) {
  WITH_CONTEXT(launch(kernel, grid, block, args, shared_bytes, stream));
}

static int launch_function(const void *function, dim3 grid, dim3 block, void **args, size_t shared_bytes, CUstream stream) {
  CUkernel kernel;
  int result = runtime_kernel(function, &kernel);
  return result ? result : launch(kernel, grid, block, args, shared_bytes, stream);
}
cudaError_t cudaLaunchKernel(const void *function, dim3 grid, dim3 block, void **args, size_t shared_bytes,
                             cudaStream_t stream) {
  WITH_CONTEXT(launch_function(function, grid, block, args, shared_bytes, stream));
}

static int launch_cooperative(const void *function, dim3 grid, dim3 block, void **args, size_t shared_bytes, CUstream stream) {
  CUkernel kernel;
  int result = runtime_kernel(function, &kernel);
  if (!result && !possible(grid, block)) result = cudaErrorInvalidConfiguration;
  return result ? result
                : (int)cuLaunchCooperativeKernel((CUfunction)kernel, grid.x, grid.y, grid.z, block.x, block.y, block.z,
                                                 (unsigned)shared_bytes, stream, args);
}
cudaError_t cudaLaunchCooperativeKernel(const void *function, dim3 grid, dim3 block, void **args, size_t shared_bytes,
                                        cudaStream_t stream) {
  WITH_CONTEXT(launch_cooperative(function, grid, block, args, shared_bytes, stream));
}

static int launch_ex(const cudaLaunchConfig_t *config, const void *function, void **args) {
  CUkernel kernel;
  int result = config ? runtime_kernel(function, &kernel) : cudaErrorInvalidConfiguration;
  if (!result && !possible(config->gridDim, config->blockDim)) result = cudaErrorInvalidConfiguration;
  if (result) return result;
  CUlaunchConfig same = {config->gridDim.x, config->gridDim.y, config->gridDim.z, config->blockDim.x, config->blockDim.y,
                         config->blockDim.z, (unsigned)config->dynamicSmemBytes, config->stream, config->attrs,
                         config->numAttrs};
  return cuLaunchKernelEx(&same, (CUfunction)kernel, args, NULL);
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *function, void **args) {
  WITH_CONTEXT(launch_ex(config, function, args));
}
