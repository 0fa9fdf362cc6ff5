/* Semaphores of other interfaces: timeline semaphores, as Vulkan has them.  Here the descriptor is that of a memory file whose
 * first word is the semaphore's value, so any process can be the other interface. */
#include "stub.h"
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

struct CUextSemaphore_st { uint64_t value; };
struct step { CUexternalSemaphore semaphore; uint64_t value; };

/* The descriptor belongs to the driver from now on. */
CUresult cuImportExternalSemaphore(CUexternalSemaphore *semaphore, const CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC *what) {
  ENTER(cuImportExternalSemaphore);
  if (!semaphore || !what || what->flags) return CUDA_ERROR_INVALID_VALUE;
  if (what->type != CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD) return CUDA_ERROR_NOT_SUPPORTED;
  void *mapped = mmap(NULL, sizeof(struct CUextSemaphore_st), PROT_READ | PROT_WRITE, MAP_SHARED, what->handle.fd, 0);
  if (mapped == MAP_FAILED) return CUDA_ERROR_INVALID_HANDLE;
  close(what->handle.fd);
  *semaphore = mapped;
  return CUDA_SUCCESS;
}

CUresult cuDestroyExternalSemaphore(CUexternalSemaphore semaphore) {
  ENTER(cuDestroyExternalSemaphore);
  return munmap(semaphore, sizeof *semaphore) ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

static CUresult signal_it(void *payload) {
  struct step *step = payload;
  __atomic_store_n(&step->semaphore->value, step->value, __ATOMIC_RELEASE);
  return CUDA_SUCCESS;
}

/* Looks every 50 us: the other side knows nothing of us. */
static CUresult wait_for_it(void *payload) {
  struct step *step = payload;
  while (__atomic_load_n(&step->semaphore->value, __ATOMIC_ACQUIRE) < step->value)
    nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
  return CUDA_SUCCESS;
}

static CUresult submit(CUstream stream, CUgraphNodeType type, CUresult (*run)(void *), struct step step, unsigned flags) {
  if (flags) return CUDA_ERROR_INVALID_VALUE;
  return stub_submit(stream, stub_op(type, run, &step, sizeof step));
}

STREAM_CALL(cuSignalExternalSemaphoresAsync, (list, params, count, stream), const CUexternalSemaphore *list,
            const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS *params, unsigned int count, CUstream stream) {
  CUresult result = CUDA_SUCCESS;
  for (unsigned i = 0; i < count && !result; i++)
    result = submit(stream, CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL, signal_it,
                    (struct step){list[i], params[i].params.fence.value}, params[i].flags);
  return result;
}

STREAM_CALL(cuWaitExternalSemaphoresAsync, (list, params, count, stream), const CUexternalSemaphore *list,
            const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS *params, unsigned int count, CUstream stream) {
  CUresult result = CUDA_SUCCESS;
  for (unsigned i = 0; i < count && !result; i++)
    result = submit(stream, CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT, wait_for_it,
                    (struct step){list[i], params[i].params.fence.value}, params[i].flags);
  return result;
}
