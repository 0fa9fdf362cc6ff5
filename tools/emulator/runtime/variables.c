/* Registered variables of the device.  The driver does not look into device code, so it is told what has been registered;
 * a variable begins as zeros, whatever its initializer says. */
#include "internal.h"
#include "null_work.h"
#include <stdlib.h>

struct variable {
  struct runtime_symbol symbol;
  size_t bytes;
};

void __cudaRegisterVar(void **handle, char *host, char *device, const char *name, int ext, size_t bytes, int constant,
                       int global) {
  (void)device, (void)ext, (void)constant, (void)global;
  struct variable *variable = calloc(1, sizeof *variable);
  variable->symbol = (struct runtime_symbol){.host = host, .image = (struct runtime_image *)handle, .name = name};
  variable->bytes = bytes;
  runtime_add(&runtime_variables, &variable->symbol);
}

static int find(const void *host, CUdeviceptr *address, size_t *bytes) {
  struct variable *variable = (struct variable *)runtime_find(&runtime_variables, host);
  if (!variable) return cudaErrorInvalidSymbol;
  CUlibrary library;
  CUmodule module;
  int result = runtime_library(variable->symbol.image, &library);
  if (!result) result = cuLibraryGetModule(&module, library);
  if (result) return result;
  emulator_variable(module, variable->symbol.name, variable->bytes);
  return cuModuleGetGlobal_v2(address, bytes, module, variable->symbol.name);
}
cudaError_t cudaGetSymbolAddress(void **memory, const void *symbol) {
  WITH_CONTEXT(memory ? find(symbol, (CUdeviceptr *)memory, NULL) : cudaErrorInvalidValue);
}

static int copy(const void *symbol, const void *from, size_t bytes, size_t offset, enum cudaMemcpyKind kind) {
  CUdeviceptr address;
  size_t size;
  int result = find(symbol, &address, &size);
  if (result) return result;
  if (kind != cudaMemcpyHostToDevice && kind != cudaMemcpyDeviceToDevice && kind != cudaMemcpyDefault)
    return cudaErrorInvalidMemcpyDirection;
  if (offset > size || bytes > size - offset) return cudaErrorInvalidValue;
  return cudaMemcpy((void *)(address + offset), from, bytes, kind);
}
cudaError_t cudaMemcpyToSymbol(const void *symbol, const void *from, size_t bytes, size_t offset, enum cudaMemcpyKind kind) {
  WITH_CONTEXT(copy(symbol, from, bytes, offset, kind));
}
