/* Devices and contexts.  A thread that has made no context current uses the primary one of its device, which the process
 * retains when it is first needed and never releases, but for cudaDeviceReset. */
#include "internal.h"

static __thread int thread_device; /* where the thread has no context yet */
static CUcontext primary[RUNTIME_DEVICES];

/* In a child that was forked afterwards the driver refuses every later call with the same number. */
int runtime_driver(void) {
  static bool started;
  if (__atomic_load_n(&started, __ATOMIC_ACQUIRE)) return cudaSuccess;
  CUresult result = cuInit(0);
  if (!result) __atomic_store_n(&started, true, __ATOMIC_RELEASE);
  return result;
}

int runtime_primary(int device, CUcontext *context) {
  if (device < 0 || device >= RUNTIME_DEVICES) return cudaErrorInvalidDevice;
  *context = __atomic_load_n(&primary[device], __ATOMIC_ACQUIRE);
  if (*context) return cudaSuccess;
  CUresult result = cuDevicePrimaryCtxRetain(context, device);
  if (result) return result;
  CUcontext none = NULL; /* another thread may have come first: one is enough */
  if (!__atomic_compare_exchange_n(&primary[device], &none, *context, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
    return cuDevicePrimaryCtxRelease_v2(device);
  return cudaSuccess;
}

static int use(int device) {
  CUcontext context, current;
  int result = runtime_primary(device, &context);
  if (!result) result = cuCtxGetCurrent(&current);
  return result || current == context ? result : (int)cuCtxSetCurrent(context);
}

int runtime_ready(void) {
  CUcontext current;
  int result = runtime_driver();
  if (!result) result = cuCtxGetCurrent(&current);
  return result || current ? result : use(thread_device);
}

cudaError_t cudaSetDevice(int device) {
  int result = runtime_driver();
  if (!result) result = use(device);
  if (!result) thread_device = device;
  return runtime_error(result);
}

static int device_now(int *device) {
  CUcontext current;
  int result = device ? (int)cuCtxGetCurrent(&current) : cudaErrorInvalidValue;
  if (result) return result;
  if (current) return cuCtxGetDevice(device);
  *device = thread_device;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int *device) { WITH_DRIVER(device_now(device)); }

cudaError_t cudaGetDeviceCount(int *count) { WITH_DRIVER(cuDeviceGetCount(count)); }
cudaError_t cudaDriverGetVersion(int *version) { return runtime_error(cuDriverGetVersion(version)); }
cudaError_t cudaRuntimeGetVersion(int *version) {
  if (!version) return runtime_error(cudaErrorInvalidValue);
  *version = RUNTIME_VERSION;
  return cudaSuccess;
}
/* The next call has a new context. */
static int reset(void) {
  int result = device_now(&thread_device);
  if (result) return result;
  __atomic_store_n(&primary[thread_device], NULL, __ATOMIC_RELEASE);
  result = cuDevicePrimaryCtxReset_v2(thread_device);
  return result ? result : (int)cuCtxSetCurrent(NULL);
}
cudaError_t cudaDeviceReset(void) { WITH_DRIVER(reset()); }
cudaError_t cudaDeviceSynchronize(void) { WITH_CONTEXT(cuCtxSynchronize()); }
cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device) {
  WITH_DRIVER(cuDeviceGetAttribute(value, (CUdevice_attribute)attribute, device));
}
cudaError_t cudaDeviceGetPCIBusId(char *text, int length, int device) { WITH_DRIVER(cuDeviceGetPCIBusId(text, length, device)); }
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
  WITH_CONTEXT(cuCtxGetStreamPriorityRange(least, greatest));
}
cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer) { WITH_DRIVER(cuDeviceCanAccessPeer(can, device, peer)); }

static int enable_peer(int peer, unsigned int flags) {
  CUcontext context;
  int result = runtime_primary(peer, &context);
  return result ? result : (int)cuCtxEnablePeerAccess(context, flags);
}
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned int flags) { WITH_CONTEXT(enable_peer(peer, flags)); }

static int entry_point(const char *symbol, void **function, unsigned int version, unsigned long long flags,
                       enum cudaDriverEntryPointQueryResult *status) {
  CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  CUresult result = cuGetProcAddress_v2(symbol, function, (int)version, flags, &found);
  if (status) *status = (enum cudaDriverEntryPointQueryResult)found;
  return result;
}
cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **function, unsigned int version, unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *status) {
  WITH_DRIVER(entry_point(symbol, function, version, flags, status));
}

/* No profiler listens. */
cudaError_t cudaProfilerStart(void) { WITH_CONTEXT(cudaSuccess); }
cudaError_t cudaProfilerStop(void) { WITH_CONTEXT(cudaSuccess); }
