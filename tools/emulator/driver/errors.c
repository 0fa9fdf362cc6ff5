/* Names and texts of errors. */
#include "stub.h"
#include <ctype.h>

static struct { CUresult error; const char *name; char text[48]; } errors[] = {
#define NAME(error) {error, #error, ""}
  NAME(CUDA_SUCCESS), NAME(CUDA_ERROR_INVALID_VALUE), NAME(CUDA_ERROR_OUT_OF_MEMORY), NAME(CUDA_ERROR_NOT_INITIALIZED),
  NAME(CUDA_ERROR_DEINITIALIZED), NAME(CUDA_ERROR_STUB_LIBRARY), NAME(CUDA_ERROR_DEVICE_UNAVAILABLE),
  NAME(CUDA_ERROR_NO_DEVICE),
  NAME(CUDA_ERROR_INVALID_DEVICE), NAME(CUDA_ERROR_INVALID_IMAGE), NAME(CUDA_ERROR_INVALID_CONTEXT),
  NAME(CUDA_ERROR_MAP_FAILED), NAME(CUDA_ERROR_ALREADY_MAPPED), NAME(CUDA_ERROR_NOT_MAPPED),
  NAME(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED), NAME(CUDA_ERROR_INVALID_PTX), NAME(CUDA_ERROR_FILE_NOT_FOUND),
  NAME(CUDA_ERROR_OPERATING_SYSTEM), NAME(CUDA_ERROR_INVALID_HANDLE), NAME(CUDA_ERROR_ILLEGAL_STATE),
  NAME(CUDA_ERROR_NOT_FOUND), NAME(CUDA_ERROR_NOT_READY), NAME(CUDA_ERROR_ILLEGAL_ADDRESS),
  NAME(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED), NAME(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED),
  NAME(CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE), NAME(CUDA_ERROR_CONTEXT_IS_DESTROYED),
  NAME(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED), NAME(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED),
  NAME(CUDA_ERROR_LAUNCH_FAILED), NAME(CUDA_ERROR_NOT_PERMITTED), NAME(CUDA_ERROR_NOT_SUPPORTED),
  NAME(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED), NAME(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED),
  NAME(CUDA_ERROR_STREAM_CAPTURE_MERGE), NAME(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED),
  NAME(CUDA_ERROR_STREAM_CAPTURE_UNJOINED), NAME(CUDA_ERROR_STREAM_CAPTURE_ISOLATION),
  NAME(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT), NAME(CUDA_ERROR_CAPTURED_EVENT),
  NAME(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD), NAME(CUDA_ERROR_TIMEOUT), NAME(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE),
  NAME(CUDA_ERROR_UNKNOWN),
#undef NAME
};

enum { ERRORS = sizeof errors / sizeof *errors };

/* The text is the name in words: "out of memory". */
__attribute__((constructor)) static void make_texts(void) {
  strcpy(errors[0].text, "no error");
  for (unsigned i = 1; i < ERRORS; i++)
    for (unsigned at = 0, from = sizeof "CUDA_ERROR_" - 1; errors[i].name[from]; at++, from++)
      errors[i].text[at] = errors[i].name[from] == '_' ? ' ' : (char)tolower(errors[i].name[from]);
}

static unsigned find(CUresult error) {
  unsigned i = 0;
  while (i < ERRORS && errors[i].error != error) i++;
  return i;
}

CUresult cuGetErrorName(CUresult error, const char **text) {
  ENTER_EARLY(cuGetErrorName);
  unsigned i = find(error);
  *text = i < ERRORS ? errors[i].name : NULL;
  return *text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult error, const char **text) {
  ENTER_EARLY(cuGetErrorString);
  unsigned i = find(error);
  *text = i < ERRORS ? errors[i].text : NULL;
  return *text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
