/* cuGetProcAddress, counts of calls, and failures on demand (EMULATOR_FAIL is set by the test that runs this). */
#include "stubtest.h"

static void *find(const char *name, int version, cuuint64_t flags, CUdriverProcAddressQueryResult wanted) {
  void *function = (void *)1;
  CUdriverProcAddressQueryResult found;
  OK(cuGetProcAddress_v2(name, &function, version, flags, &found));
  CHECK_THAT(found == wanted && (function == NULL) == (wanted != CU_GET_PROC_ADDRESS_SUCCESS));
  return function;
}
#define FOUND CU_GET_PROC_ADDRESS_SUCCESS
#define IS_FOUND(name, version, flags, symbol) CHECK_THAT(find(name, version, flags, FOUND) == (void *)symbol)

static void versions(void) {
  IS_FOUND("cuCtxSynchronize", 2000, 0, cuCtxSynchronize);
  IS_FOUND("cuCtxSynchronize", 12080, 0, cuCtxSynchronize);
  IS_FOUND("cuCtxSynchronize", 13000, 0, cuCtxSynchronize_v2);
  IS_FOUND("cuMemPrefetchAsync", 8000, 0, cuMemPrefetchAsync);
  IS_FOUND("cuMemPrefetchAsync", 12020, 0, cuMemPrefetchAsync_v2);
  IS_FOUND("cuMemPrefetchAsync", 12020, 2, cuMemPrefetchAsync_v2_ptsz);
  IS_FOUND("cuGetProcAddress", 11030, 0, cuGetProcAddress);
  IS_FOUND("cuGetProcAddress", 12000, 0, cuGetProcAddress_v2);
  IS_FOUND("cuGraphInstantiate", 11000, 0, cuGraphInstantiate_v2);
  IS_FOUND("cuGraphInstantiate", 12000, 0, cuGraphInstantiateWithFlags);
  IS_FOUND("cuStreamGetCaptureInfo", 12030, 2, cuStreamGetCaptureInfo_v3_ptsz);
  IS_FOUND("cuMemcpyHtoD", 3020, 1, cuMemcpyHtoD_v2);
  IS_FOUND("cuMemcpyHtoD", 7000, 2, cuMemcpyHtoD_v2_ptds);
  IS_FOUND("cuMemcpyHtoD", 6000, 2, cuMemcpyHtoD_v2); /* before there were per-thread forms */
  IS_FOUND("cuMemAlloc", 12000, 2, cuMemAlloc_v2);    /* has none */
  find("cuMemCreate", 10000, 0, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
  find("cuNoSuchThing", 13000, 0, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
  find("cuMemAlloc_v2", 13000, 0, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND); /* base names only */
  void *function;
  IS(cuGetProcAddress_v2("cuInit", &function, 99999, 0, NULL), CUDA_ERROR_INVALID_VALUE);
  IS(cuGetProcAddress("cuNoSuchThing", &function, 12000, 0), CUDA_ERROR_NOT_FOUND);
}

int main(void) {
  versions();
  begin();
  unsigned long before = stub_calls("cuMemAlloc");
  CUdeviceptr a = take(MIB), b;
  IS(cuMemAlloc_v2(&b, MIB), CUDA_ERROR_OUT_OF_MEMORY); /* cuMemAlloc=2@2 */
  b = take(MIB);
  CHECK_THAT(stub_calls("cuMemAlloc") == before + 3 && stub_calls("cuMemAlloc_v2") == before + 3);
  IS(cuStreamQuery(NULL), CUDA_ERROR_LAUNCH_FAILED); /* cuStreamQuery=719 */
  IS(cuStreamQuery_ptsz(NULL), CUDA_ERROR_LAUNCH_FAILED);
  CHECK_THAT(stub_calls("cuStreamQuery") == 2 && stub_calls("cuStreamQuery_ptsz") == 1);
  OK(cuMemFree_v2(a));
  OK(cuMemFree_v2(b));
  uint64_t extra_args[1] = {1};
  size_t size = sizeof extra_args;
  void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, extra_args, CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_END};
  OK(cuLaunchKernel(function("spin_us"), 1, 1, 1, 1, 1, 1, 0, NULL, NULL, extra));
  CUlaunchConfig config = {1, 1, 1, 1, 1, 1, 0, NULL, NULL, 0};
  OK(cuLaunchKernelEx(&config, function("nop"), NULL, NULL));
  IS(cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), CUDA_ERROR_INVALID_HANDLE);
  return 0;
}
