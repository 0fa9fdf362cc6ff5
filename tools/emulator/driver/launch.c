/* Launches, in all their forms. */
#include "stub.h"

bool stub_is_nop(CUfunction function);

static CUresult launch(CUfunction function, CUstream stream, void **params, void **extra, bool has_size) {
  if (stub_is_nop(function)) return CUDA_SUCCESS;
  if (!has_size) return CUDA_ERROR_INVALID_VALUE;
  CUresult result;
  struct stub_op *op = stub_kernel_op(function, params, extra, &result);
  return result ? result : stub_submit(stream, op);
}

STREAM_CALL(cuLaunchKernel, (function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, params, extra),
            CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z, unsigned int block_x,
            unsigned int block_y, unsigned int block_z, unsigned int shared_bytes, CUstream stream, void **params, void **extra) {
  (void)shared_bytes;
  return launch(function, stream, params, extra, grid_x && grid_y && grid_z && block_x && block_y && block_z);
}
STREAM_CALL(cuLaunchCooperativeKernel,
            (function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, params), CUfunction function,
            unsigned int grid_x, unsigned int grid_y, unsigned int grid_z, unsigned int block_x, unsigned int block_y,
            unsigned int block_z, unsigned int shared_bytes, CUstream stream, void **params) {
  (void)shared_bytes;
  return launch(function, stream, params, NULL, grid_x && grid_y && grid_z && block_x && block_y && block_z);
}

static CUresult launch_ex(const CUlaunchConfig *config, CUfunction function, void **params, void **extra, CUstream usual) {
  if (!config) return CUDA_ERROR_INVALID_VALUE;
  bool has_size = config->gridDimX && config->gridDimY && config->gridDimZ && config->blockDimX && config->blockDimY &&
                  config->blockDimZ;
  return launch(function, config->hStream ? config->hStream : usual, params, extra, has_size);
}
CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction function, void **params, void **extra) {
  ENTER(cuLaunchKernelEx);
  return launch_ex(config, function, params, extra, CU_STREAM_LEGACY);
}
CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig *config, CUfunction function, void **params, void **extra) {
  ENTER(cuLaunchKernelEx_ptsz);
  return launch_ex(config, function, params, extra, CU_STREAM_PER_THREAD);
}

/* Forms from before CUDA 4: parameters were set beforehand, by calls that the stub lacks; only nop() works. */
CUresult cuLaunchGridAsync(CUfunction function, int width, int height, CUstream stream) {
  ENTER(cuLaunchGridAsync);
  return launch(function, stream ? stream : CU_STREAM_LEGACY, NULL, NULL, width > 0 && height > 0);
}
FORWARD(cuLaunchGrid, cuLaunchGridAsync, (function, width, height, NULL), CUfunction function, int width, int height)
FORWARD(cuLaunch, cuLaunchGridAsync, (function, 1, 1, NULL), CUfunction function)
