/* Events. */
#include "internal.h"

cudaError_t cudaEventCreate(cudaEvent_t *event) { WITH_CONTEXT(cuEventCreate(event, CU_EVENT_DEFAULT)); }
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags) { WITH_CONTEXT(cuEventCreate(event, flags)); }
cudaError_t cudaEventDestroy(cudaEvent_t event) { WITH_CONTEXT(cuEventDestroy_v2(event)); }
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) { WITH_CONTEXT(cuEventRecord(event, stream)); }
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned int flags) {
  WITH_CONTEXT(cuEventRecordWithFlags(event, stream, flags));
}
cudaError_t cudaEventQuery(cudaEvent_t event) { WITH_CONTEXT(cuEventQuery(event)); }
cudaError_t cudaEventSynchronize(cudaEvent_t event) { WITH_CONTEXT(cuEventSynchronize(event)); }
cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t start, cudaEvent_t end) {
  WITH_CONTEXT(cuEventElapsedTime_v2(milliseconds, start, end));
}
