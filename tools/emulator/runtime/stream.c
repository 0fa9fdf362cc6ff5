/* Streams and what the host does in them. */
#include "internal.h"

cudaError_t cudaStreamCreate(cudaStream_t *stream) { WITH_CONTEXT(cuStreamCreate(stream, CU_STREAM_DEFAULT)); }
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned int flags) { WITH_CONTEXT(cuStreamCreate(stream, flags)); }
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned int flags, int priority) {
  WITH_CONTEXT(cuStreamCreateWithPriority(stream, flags, priority));
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) { WITH_CONTEXT(cuStreamDestroy_v2(stream)); }
cudaError_t cudaStreamGetPriority(cudaStream_t stream, int *priority) { WITH_CONTEXT(cuStreamGetPriority(stream, priority)); }
cudaError_t cudaStreamQuery(cudaStream_t stream) { WITH_CONTEXT(cuStreamQuery(stream)); }
cudaError_t cudaStreamSynchronize(cudaStream_t stream) { WITH_CONTEXT(cuStreamSynchronize(stream)); }
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags) {
  WITH_CONTEXT(cuStreamWaitEvent(stream, event, flags));
}
cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t callback, void *argument, unsigned int flags) {
  WITH_CONTEXT(cuStreamAddCallback(stream, (CUstreamCallback)callback, argument, flags));
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *argument) {
  WITH_CONTEXT(cuLaunchHostFunc(stream, function, argument));
}
