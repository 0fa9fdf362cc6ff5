/* Registered variables of the device.
 *
 * The driver knows nothing of them, because it does not look into device code: each has memory of the registered size on
 * every device that asks for it, and begins as zeros (new memory is zero), whatever its initializer says. */
#include "internal.h"
#include <stdlib.h>

struct variable {
  struct runtime_symbol symbol;
  size_t bytes;
  CUdeviceptr address[RUNTIME_DEVICES]; /* 0: not asked for yet */
};

void __cudaRegisterVar(void **handle, char *host, char *device, const char *name, int ext, size_t bytes, int constant,
                       int global) {
  (void)device, (void)ext, (void)constant, (void)global;
  struct variable *variable = calloc(1, sizeof *variable);
  variable->symbol = (struct runtime_symbol){.host = host, .image = (struct runtime_image *)handle, .name = name};
  variable->bytes = bytes;
  runtime_add(&runtime_variables, &variable->symbol);
}

/* Allowed during a capture, where the real one's memory has long been there. */
static int allocate(CUdeviceptr *address, size_t bytes) {
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  CUdeviceptr made, none = 0;
  cuThreadExchangeStreamCaptureMode(&mode);
  CUresult result = cuMemAlloc_v2(&made, bytes);
  if (!result && !__atomic_compare_exchange_n(address, &none, made, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
    result = cuMemFree_v2(made);
  cuThreadExchangeStreamCaptureMode(&mode);
  return result;
}

static int address_of(const void *symbol, struct variable **variable, CUdeviceptr *address) {
  CUdevice device;
  *variable = (struct variable *)runtime_find(&runtime_variables, symbol);
  int result = *variable ? (int)cuCtxGetDevice(&device) : cudaErrorInvalidSymbol;
  if (result) return result;
  CUdeviceptr *own = &(*variable)->address[device];
  result = __atomic_load_n(own, __ATOMIC_ACQUIRE) ? cudaSuccess : allocate(own, (*variable)->bytes);
  *address = *own;
  return result;
}

static int find(void **memory, const void *symbol) {
  struct variable *variable;
  return memory ? address_of(symbol, &variable, (CUdeviceptr *)memory) : cudaErrorInvalidValue;
}
cudaError_t cudaGetSymbolAddress(void **memory, const void *symbol) { WITH_CONTEXT(find(memory, symbol)); }

static int copy(const void *symbol, const void *from, size_t bytes, size_t offset, enum cudaMemcpyKind kind) {
  struct variable *variable;
  CUdeviceptr address;
  int result = address_of(symbol, &variable, &address);
  if (result) return result;
  if (kind != cudaMemcpyHostToDevice && kind != cudaMemcpyDeviceToDevice && kind != cudaMemcpyDefault)
    return cudaErrorInvalidMemcpyDirection;
  if (offset > variable->bytes || bytes > variable->bytes - offset) return cudaErrorInvalidValue;
  return cudaMemcpy((void *)(address + offset), from, bytes, kind);
}
cudaError_t cudaMemcpyToSymbol(const void *symbol, const void *from, size_t bytes, size_t offset, enum cudaMemcpyKind kind) {
  WITH_CONTEXT(copy(symbol, from, bytes, offset, kind));
}
