/* Questions about contexts, and waiting for all of their work. */
#include "stub.h"

CUresult cuCtxGetDevice_v2(CUdevice *device, CUcontext context) {
  ENTER(cuCtxGetDevice_v2);
  CUcontext current;
  if (!device) return CUDA_ERROR_INVALID_VALUE;
  if (!context && stub_current(&current) == CUDA_ERROR_INVALID_CONTEXT) return CUDA_ERROR_INVALID_CONTEXT;
  *device = (context ? context : current)->device;
  return CUDA_SUCCESS;
}
FORWARD(cuCtxGetDevice, cuCtxGetDevice_v2, (device, NULL), CUdevice *device)

CUresult cuCtxGetFlags(unsigned int *flags) {
  ENTER(cuCtxGetFlags);
  CUcontext context;
  CUresult result = stub_current(&context);
  if (!result) *flags = context->flags;
  return result;
}
CUresult cuCtxGetId(CUcontext context, unsigned long long *id) {
  ENTER(cuCtxGetId);
  CUcontext current;
  CUresult result = context ? CUDA_SUCCESS : stub_current(&current);
  if (!result) *id = (context ? context : current)->id;
  return result;
}
CUresult cuCtxGetApiVersion(CUcontext context, unsigned int *version) {
  ENTER(cuCtxGetApiVersion);
  CUcontext current;
  CUresult result = context ? CUDA_SUCCESS : stub_current(&current);
  if (!result) *version = 3020;
  return result;
}
CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest) {
  ENTER(cuCtxGetStreamPriorityRange);
  CUcontext context;
  CUresult result = stub_current(&context);
  if (!result && least) *least = 0;
  if (!result && greatest) *greatest = -5;
  return result;
}

/* Limits and cache preferences are kept nowhere: nothing here depends on them. */
CUresult cuCtxSetLimit(CUlimit limit, size_t value) {
  ENTER(cuCtxSetLimit);
  CUcontext context;
  (void)limit, (void)value;
  return stub_current(&context);
}
CUresult cuCtxGetLimit(size_t *value, CUlimit limit) {
  ENTER(cuCtxGetLimit);
  CUcontext context;
  CUresult result = stub_current(&context);
  (void)limit;
  if (!result) *value = 1024;
  return result;
}
CUresult cuCtxSetCacheConfig(CUfunc_cache config) {
  ENTER(cuCtxSetCacheConfig);
  CUcontext context;
  (void)config;
  return stub_current(&context);
}
CUresult cuCtxGetCacheConfig(CUfunc_cache *config) {
  ENTER(cuCtxGetCacheConfig);
  CUcontext context;
  CUresult result = stub_current(&context);
  if (!result) *config = CU_FUNC_CACHE_PREFER_NONE;
  return result;
}

CUresult stub_context_drain(CUcontext context) {
  CUresult result = CUDA_SUCCESS;
  stub_lock();
  CUstream streams = context->streams; /* later ones are put in front; none leaves the list */
  stub_unlock();
  for (CUstream stream = streams; stream; stream = stream->next) {
    CUresult one = stub_stream_drain(stream);
    if (one) result = one;
  }
  return result;
}

static CUresult synchronize(CUcontext context) {
  CUresult result = stub_unsafe();
  if (result) return result;
  stub_lock();
  bool captures = stub_capturing(context, false, true);
  stub_unlock();
  if (captures) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  result = stub_context_drain(context);
  stub_pools_trim();
  return result;
}

CUresult cuCtxSynchronize(void) {
  ENTER(cuCtxSynchronize);
  CUcontext context;
  CUresult result = stub_current(&context);
  return result ? result : synchronize(context);
}
CUresult cuCtxSynchronize_v2(CUcontext context) {
  ENTER(cuCtxSynchronize_v2);
  CUcontext current;
  CUresult result = context ? CUDA_SUCCESS : stub_current(&current);
  return result ? result : synchronize(context ? context : current);
}

static CUresult peer(CUcontext other) {
  CUcontext context;
  CUresult result = stub_current(&context);
  if (result) return result;
  if (!other || other->device == context->device) return CUDA_ERROR_INVALID_DEVICE;
  return CUDA_SUCCESS; /* all memory of this process is reachable anyway */
}
CUresult cuCtxEnablePeerAccess(CUcontext other, unsigned int flags) {
  ENTER(cuCtxEnablePeerAccess);
  return flags ? CUDA_ERROR_INVALID_VALUE : peer(other);
}
CUresult cuCtxDisablePeerAccess(CUcontext other) {
  ENTER(cuCtxDisablePeerAccess);
  return peer(other);
}
