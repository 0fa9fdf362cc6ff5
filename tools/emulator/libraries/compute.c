/* Computations that compute nothing, but take their place in a stream as kernels do. */
#include "library.h"
#include <pthread.h>

struct loaded {
  unsigned long long context;
  CUmodule module;
  struct loaded *next;
};
static struct loaded *modules;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Loading is a call that a capture in another stream forbids, and it has nothing to do with what is captured. */
static CUresult load(CUmodule *module) {
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  cuThreadExchangeStreamCaptureMode(&mode);
  CUresult result = cuModuleLoadData(module, "null");
  cuThreadExchangeStreamCaptureMode(&mode);
  return result;
}

/* The context's module of null kernels, loaded at first use. */
static CUresult module_of(unsigned long long context, CUmodule *module) {
  for (struct loaded *at = modules; at; at = at->next)
    if (at->context == context) return *module = at->module, CUDA_SUCCESS;
  CUresult result = load(module);
  if (result) return result;
  struct loaded *made = malloc(sizeof *made);
  *made = (struct loaded){context, *module, modules};
  modules = made;
  return CUDA_SUCCESS;
}

static CUresult look_up(struct computation *computation, unsigned long long context) {
  CUmodule module;
  CUresult result = module_of(context, &module);
  if (!result) result = cuModuleGetFunction(&computation->function, module, computation->name);
  computation->context = result ? 0 : context;
  return result;
}

static CUresult function_in(struct computation *computation, unsigned long long context, CUfunction *function) {
  pthread_mutex_lock(&lock);
  CUresult result = computation->context == context ? CUDA_SUCCESS : look_up(computation, context);
  *function = computation->function;
  pthread_mutex_unlock(&lock);
  return result;
}

bool compute(struct computation *computation, uintptr_t stream) {
  unsigned long long context;
  CUfunction function;
  if (cuCtxGetId(NULL, &context) || function_in(computation, context, &function)) return false;
  return !cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, (CUstream)stream, NULL, NULL);
}
