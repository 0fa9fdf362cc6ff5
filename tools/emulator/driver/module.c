/* Modules and libraries.  The module whose image is the text "stub" has the kernels of kernel.c; any other image gives a
 * null module, which has a null kernel for every name but those of Carpool's own kernels, and the variables that
 * emulator_variable has told of. */
#include "kernel.h"
#include "extra.h"
#include "null_work.h"
#include <unistd.h>

struct variable {
  struct variable *next;
  size_t bytes;
  CUdeviceptr address; /* 0: nobody has asked for it yet */
  uint64_t id;         /* of the memory there: it may be gone with its context */
  char name[];
};
struct CUmod_st {
  bool null, loaded;
  CUfunction functions; /* those that were asked for */
  struct variable *variables;
};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of both lists of all modules */

static CUresult load(void **module, const void *image) {
  CUcontext context;
  CUresult result = stub_current(&context);
  if (!result) result = stub_unsafe();
  if (result) return result;
  if (!module || !image) return CUDA_ERROR_INVALID_VALUE;
  CUmodule made = calloc(1, sizeof *made);
  made->null = strncmp(image, "stub", 4) != 0;
  *module = made;
  return CUDA_SUCCESS;
}

CUresult stub_module_load(CUmodule module) {
  CUcontext context;
  CUresult result = stub_current(&context);
  pthread_mutex_lock(&lock);
  if (!result && !module->loaded) result = stub_context_grow(context);
  module->loaded |= !result;
  pthread_mutex_unlock(&lock);
  return result;
}

static struct stub_range *memory_of(const struct variable *variable) {
  stub_ranges_lock();
  struct stub_range *range = variable->address ? stub_range_find((void *)variable->address) : NULL;
  stub_ranges_unlock();
  return range && range->id == variable->id ? range : NULL;
}

/* Waits for the work of the current context, if there is one, because it may use the variables. */
static void unload(CUmodule module) {
  CUcontext context;
  if (!stub_current(&context)) stub_context_drain(context);
  for (CUfunction at = module->functions, next; at; at = next) next = at->next, free(at);
  for (struct variable *at = module->variables, *next; at; at = next) {
    next = at->next;
    struct stub_range *range = memory_of(at);
    if (range) stub_device_free(range);
    free(at);
  }
  free(module);
}

static bool ours(const char *name) { return !strncmp(name, "carpool_", 8); }

/* Under the lock. */
static CUfunction function_of(CUmodule module, const char *name) {
  CUfunction at = module->functions;
  while (at && strcmp(at->name, name)) at = at->next;
  const struct stub_kernel *kernel = stub_kernel_named(name);
  if (at || (!kernel && !module->null)) return at;
  at = calloc(1, sizeof *at + strlen(name) + 1);
  *at = (struct CUfunc_st){.kernel = module->null && !ours(name) ? NULL : kernel, .module = module, .next = module->functions};
  strcpy(at->name, name);
  return module->functions = at;
}
static CUresult find(void **function, CUmodule module, const char *name) {
  if (!function || !module || !name) return CUDA_ERROR_INVALID_VALUE;
  pthread_mutex_lock(&lock);
  CUfunction found = function_of(module, name);
  pthread_mutex_unlock(&lock);
  if (found) *function = found;
  return found ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult cuModuleLoadData(CUmodule *module, const void *image) {
  ENTER(cuModuleLoadData);
  return load((void **)module, image);
}
FORWARD(cuModuleLoadFatBinary, cuModuleLoadData, (module, image), CUmodule *module, const void *image)
CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int count, CUjit_option *options, void **values) {
  ENTER(cuModuleLoadDataEx);
  (void)count, (void)options, (void)values;
  return load((void **)module, image);
}
CUresult cuModuleLoad(CUmodule *module, const char *path) {
  ENTER(cuModuleLoad);
  return path && !access(path, R_OK) ? load((void **)module, "a file") : CUDA_ERROR_FILE_NOT_FOUND;
}
CUresult cuModuleUnload(CUmodule module) {
  ENTER(cuModuleUnload);
  CUcontext context;
  CUresult result = stub_current(&context);
  if (!result && !module) result = CUDA_ERROR_INVALID_HANDLE;
  if (!result) unload(module);
  return result;
}
CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode *mode) {
  ENTER(cuModuleGetLoadingMode);
  *mode = CU_MODULE_LAZY_LOADING;
  return CUDA_SUCCESS;
}
CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
  ENTER(cuModuleGetFunction);
  return find((void **)function, module, name);
}

static struct variable *variable_of(CUmodule module, const char *name) {
  struct variable *at = module->variables;
  while (at && strcmp(at->name, name)) at = at->next;
  return at;
}

void emulator_variable(CUmodule module, const char *name, size_t bytes) {
  pthread_mutex_lock(&lock);
  if (!variable_of(module, name)) {
    struct variable *made = calloc(1, sizeof *made + strlen(name) + 1);
    *made = (struct variable){.next = module->variables, .bytes = bytes};
    strcpy(made->name, name);
    module->variables = made;
  }
  pthread_mutex_unlock(&lock);
}

/* Memory is taken when somebody asks for the address, in whole pages like all memory here. */
static CUresult place(struct variable *variable, CUdeviceptr *address, size_t *bytes) {
  CUcontext context;
  struct stub_range *range = memory_of(variable);
  CUresult result = range ? CUDA_SUCCESS : stub_current(&context);
  if (!result && !range) result = stub_device_alloc(context, STUB_VARIABLE, variable->bytes, &range);
  if (result) return result;
  variable->address = (CUdeviceptr)range->base;
  variable->id = range->id;
  if (address) *address = variable->address;
  if (bytes) *bytes = variable->bytes;
  return CUDA_SUCCESS;
}
static CUresult global(CUdeviceptr *address, size_t *bytes, CUmodule module, const char *name) {
  if (!module || !name || (!address && !bytes)) return CUDA_ERROR_INVALID_VALUE;
  pthread_mutex_lock(&lock);
  struct variable *variable = variable_of(module, name);
  CUresult result = variable ? place(variable, address, bytes) : CUDA_ERROR_NOT_FOUND;
  pthread_mutex_unlock(&lock);
  return result;
}
CUresult cuModuleGetGlobal_v2(CUdeviceptr *address, size_t *bytes, CUmodule module, const char *name) {
  ENTER(cuModuleGetGlobal_v2);
  return global(address, bytes, module, name);
}

/* A library is its module and a kernel its function. */
CUresult cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *jit, void **jit_values, unsigned int jit_count,
                           CUlibraryOption *options, void **values, unsigned int count) {
  ENTER(cuLibraryLoadData);
  (void)jit, (void)jit_values, (void)jit_count, (void)options, (void)values, (void)count;
  return load((void **)library, code);
}
CUresult cuLibraryUnload(CUlibrary library) {
  ENTER(cuLibraryUnload);
  if (!library) return CUDA_ERROR_INVALID_HANDLE;
  unload((CUmodule)library);
  return CUDA_SUCCESS;
}
CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name) {
  ENTER(cuLibraryGetKernel);
  return find((void **)kernel, (CUmodule)library, name);
}
CUresult cuLibraryGetModule(CUmodule *module, CUlibrary library) {
  ENTER(cuLibraryGetModule);
  *module = (CUmodule)library;
  return CUDA_SUCCESS;
}
CUresult cuLibraryGetGlobal(CUdeviceptr *address, size_t *bytes, CUlibrary library, const char *name) {
  ENTER(cuLibraryGetGlobal);
  return global(address, bytes, (CUmodule)library, name);
}
