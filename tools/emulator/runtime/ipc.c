/* Memory and events that another process opens.  A handle's 64 bytes are the driver's. */
#include "internal.h"

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *handle, void *memory) {
  WITH_CONTEXT(cuIpcGetMemHandle((CUipcMemHandle *)handle, runtime_address(memory)));
}
cudaError_t cudaIpcOpenMemHandle(void **memory, cudaIpcMemHandle_t handle, unsigned int flags) {
  CUipcMemHandle same;
  memcpy(&same, &handle, sizeof same);
  WITH_CONTEXT(cuIpcOpenMemHandle_v2((CUdeviceptr *)memory, same, flags));
}
cudaError_t cudaIpcCloseMemHandle(void *memory) { WITH_CONTEXT(cuIpcCloseMemHandle(runtime_address(memory))); }
cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t *handle, cudaEvent_t event) {
  WITH_CONTEXT(cuIpcGetEventHandle((CUipcEventHandle *)handle, event));
}
cudaError_t cudaIpcOpenEventHandle(cudaEvent_t *event, cudaIpcEventHandle_t handle) {
  CUipcEventHandle same;
  memcpy(&same, &handle, sizeof same);
  WITH_CONTEXT(cuIpcOpenEventHandle(event, same));
}
