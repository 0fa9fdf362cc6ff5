/* Errors: each thread's last one, and what they are called. */
#include "internal.h"

static __thread cudaError_t last;

static bool sticky(cudaError_t error) {
  switch (error) {
#define ERROR(name, number, text)
#define STICKY(name, number, text) case name:
#include "errors.def"
#undef STICKY
#undef ERROR
    return true;
    default: return false;
  }
}

/* "Not ready" is an answer and no error. */
cudaError_t runtime_error(int result) {
  cudaError_t error = (cudaError_t)result;
  if (error != cudaSuccess && error != cudaErrorNotReady) last = error;
  return error;
}

/* An error that has broken the context stays the last one. */
cudaError_t cudaGetLastError(void) {
  cudaError_t error = last;
  if (!sticky(error)) last = cudaSuccess;
  return error;
}
cudaError_t cudaPeekAtLastError(void) { return last; }

const char *cudaGetErrorName(cudaError_t error) {
  switch (error) {
#define ERROR(name, number, text) case name: return #name;
#define STICKY ERROR
#include "errors.def"
#undef STICKY
#undef ERROR
    default: return "unrecognized error code";
  }
}
const char *cudaGetErrorString(cudaError_t error) {
  switch (error) {
#define ERROR(name, number, text) case name: return text;
#define STICKY ERROR
#include "errors.def"
#undef STICKY
#undef ERROR
    default: return "unrecognized error code";
  }
}
