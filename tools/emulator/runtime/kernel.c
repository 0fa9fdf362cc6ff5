/* Kernels: registered functions and what libraries hold by name.
 *
 * A kernel belongs to no context, so a handle serves all devices.  Code is loaded when its first kernel is needed; that is
 * allowed during a capture. */
#include "internal.h"
#include <stdlib.h>

struct function {
  struct runtime_symbol symbol;
  CUkernel kernel; /* NULL: not asked for yet */
};

void __cudaRegisterFunction(void **handle, const char *host, char *device, const char *name, int thread_limit, void *thread,
                            void *block, void *block_dim, void *grid_dim, int *warp_size) {
  (void)device, (void)thread_limit, (void)thread, (void)block, (void)block_dim, (void)grid_dim, (void)warp_size;
  struct function *function = calloc(1, sizeof *function);
  function->symbol = (struct runtime_symbol){.host = host, .image = (struct runtime_image *)handle, .name = name};
  runtime_add(&runtime_functions, &function->symbol);
}

static int load(struct runtime_image *image) {
  CUlibrary library, none = NULL;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  cuThreadExchangeStreamCaptureMode(&mode);
  CUresult result = cuLibraryLoadData(&library, image->code, NULL, NULL, 0, NULL, NULL, 0);
  cuThreadExchangeStreamCaptureMode(&mode);
  if (result) return result;
  if (!__atomic_compare_exchange_n(&image->library, &none, library, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
    return cuLibraryUnload(library); /* another thread came first */
  return cudaSuccess;
}
int runtime_library(struct runtime_image *image, CUlibrary *library) {
  int result = __atomic_load_n(&image->library, __ATOMIC_ACQUIRE) ? cudaSuccess : load(image);
  *library = __atomic_load_n(&image->library, __ATOMIC_ACQUIRE);
  return result;
}

static int load_function(struct function *function) {
  CUlibrary library;
  CUkernel kernel;
  int result = runtime_library(function->symbol.image, &library);
  if (!result) result = cuLibraryGetKernel(&kernel, library, function->symbol.name);
  if (!result) __atomic_store_n(&function->kernel, kernel, __ATOMIC_RELEASE);
  return result == cudaErrorSymbolNotFound ? cudaErrorInvalidDeviceFunction : result;
}

int runtime_kernel(const void *host, CUkernel *kernel) {
  struct function *function = (struct function *)runtime_find(&runtime_functions, host);
  if (!function) return cudaErrorInvalidDeviceFunction;
  int result = __atomic_load_n(&function->kernel, __ATOMIC_ACQUIRE) ? cudaSuccess : load_function(function);
  *kernel = __atomic_load_n(&function->kernel, __ATOMIC_ACQUIRE);
  return result;
}
cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *function) { WITH_CONTEXT(runtime_kernel(function, kernel)); }
