/* Stream memory operations: a stream that waits for a word of memory, or writes one. */
#include "stub.h"
#include <time.h>

struct word { CUdeviceptr address; uint64_t value; unsigned flags; bool wide; };

static bool satisfied(const struct word *word, uint64_t now) {
  uint64_t value = word->value;
  switch (word->flags & 3) {
    case CU_STREAM_WAIT_VALUE_GEQ: return word->wide ? (int64_t)(now - value) >= 0 : (int32_t)(uint32_t)(now - value) >= 0;
    case CU_STREAM_WAIT_VALUE_EQ: return now == value;
    case CU_STREAM_WAIT_VALUE_AND: return (now & value) != 0;
    default: return (word->wide ? ~(now | value) : (uint32_t)~(now | value)) != 0;
  }
}

static uint64_t load(const struct word *word) {
  return word->wide ? __atomic_load_n((uint64_t *)word->address, __ATOMIC_ACQUIRE)
                    : __atomic_load_n((uint32_t *)word->address, __ATOMIC_ACQUIRE);
}

static bool has_arrived(const void *payload, CUresult *result) {
  const struct word *word = payload;
  bool reached = stub_reaches(word->address, word->wide ? 8 : 4, false);
  *result = reached ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS;
  return !reached || satisfied(word, load(word));
}

/* In a graph. */
static CUresult wait(void *payload) {
  CUresult result;
  while (!has_arrived(payload, &result)) nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
  return result;
}
static CUresult write_word(void *payload) {
  struct word *word = payload;
  if (!stub_reaches(word->address, word->wide ? 8 : 4, true)) return CUDA_ERROR_ILLEGAL_ADDRESS;
  if (word->wide) __atomic_store_n((uint64_t *)word->address, word->value, __ATOMIC_RELEASE);
  else __atomic_store_n((uint32_t *)word->address, (uint32_t)word->value, __ATOMIC_RELEASE);
  return CUDA_SUCCESS;
}

static CUresult submit(CUstream stream, CUdeviceptr address, uint64_t value, unsigned flags, bool wide, bool waits) {
  struct word word = {address, value, flags, wide};
  unsigned known = waits ? 3u | CU_STREAM_WAIT_VALUE_FLUSH : 1u;
  if (address % (wide ? 8 : 4) || !stub_reaches(address, wide ? 8 : 4, !waits) || flags & ~known) return CUDA_ERROR_INVALID_VALUE;
  if (flags & CU_STREAM_WAIT_VALUE_FLUSH) return CUDA_ERROR_NOT_SUPPORTED;
  struct stub_op *op = stub_op(CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, waits ? wait : write_word, &word, sizeof word);
  op->arrived = waits ? has_arrived : NULL;
  return stub_submit(stream, op);
}

#define OPERATIONS(form)                                                                                                 \
  STREAM_CALL(cuStreamWaitValue32##form, (stream, address, value, flags), CUstream stream, CUdeviceptr address,          \
              cuuint32_t value, unsigned int flags) {                                                                    \
    return submit(stream, address, value, flags, false, true);                                                           \
  }                                                                                                                      \
  STREAM_CALL(cuStreamWaitValue64##form, (stream, address, value, flags), CUstream stream, CUdeviceptr address,          \
              cuuint64_t value, unsigned int flags) {                                                                    \
    return submit(stream, address, value, flags, true, true);                                                            \
  }                                                                                                                      \
  STREAM_CALL(cuStreamWriteValue32##form, (stream, address, value, flags), CUstream stream, CUdeviceptr address,         \
              cuuint32_t value, unsigned int flags) {                                                                    \
    return submit(stream, address, value, flags, false, false);                                                          \
  }                                                                                                                      \
  STREAM_CALL(cuStreamWriteValue64##form, (stream, address, value, flags), CUstream stream, CUdeviceptr address,         \
              cuuint64_t value, unsigned int flags) {                                                                    \
    return submit(stream, address, value, flags, true, false);                                                           \
  }                                                                                                                      \
  STREAM_CALL(cuStreamBatchMemOp##form, (stream, count, params, flags), CUstream stream, unsigned int count,             \
              CUstreamBatchMemOpParams *params, unsigned int flags) {                                                    \
    return batch(stream, count, params, flags);                                                                          \
  }

static CUresult one(CUstream stream, const CUstreamBatchMemOpParams *op) {
  CUdeviceptr address = op->waitValue.address; /* writes have the same layout */
  uint64_t narrow = op->waitValue.value, wide = op->waitValue.value64;
  switch (op->operation) {
    case CU_STREAM_MEM_OP_WAIT_VALUE_32: return submit(stream, address, narrow, op->waitValue.flags, false, true);
    case CU_STREAM_MEM_OP_WAIT_VALUE_64: return submit(stream, address, wide, op->waitValue.flags, true, true);
    case CU_STREAM_MEM_OP_WRITE_VALUE_32: return submit(stream, address, narrow, op->writeValue.flags, false, false);
    case CU_STREAM_MEM_OP_WRITE_VALUE_64: return submit(stream, address, wide, op->writeValue.flags, true, false);
    case CU_STREAM_MEM_OP_BARRIER: return CUDA_SUCCESS;
    default: return CUDA_ERROR_NOT_SUPPORTED;
  }
}
static CUresult batch(CUstream stream, unsigned count, const CUstreamBatchMemOpParams *params, unsigned flags) {
  if (!count || count > 256 || !params || flags) return CUDA_ERROR_INVALID_VALUE;
  CUresult result = CUDA_SUCCESS;
  for (unsigned i = 0; i < count && !result; i++) result = one(stream, &params[i]);
  return result;
}
OPERATIONS(/* the first form */)
OPERATIONS(_v2)
