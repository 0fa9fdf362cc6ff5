/* Weights that come to a CUDA device: copied from pinned host memory in a stream of our own, group after group, without
 * waiting in between.  Nothing traps there, so who computes says what he is about to use (cp_groups_follow), and his
 * stream waits for the copy, not he himself. */
#include "cuda/memory/weights.h"
#include "weights/groups_state.h"

#include <stdlib.h>
#include <string.h>

struct carriage {
  CUcontext context;
  CUstream stream;
  CUevent *events; /* of each group */
  bool pinned;
};

static void warn(void) {
  static const char text[] = "carpool: warning: the weights of a model cannot be pinned in host memory; copies will be slow\n";
  static bool warned;
  if (!warned) syscall(SYS_write, STDERR_FILENO, text, sizeof text - 1);
  warned = true;
}

/* ---- in the thread that brings them -------------------------------------------------------------------------------------- */

static bool ready(struct cp_groups *g) {
  const struct carriage *c = g->carriage;
  uint64_t key;
  memcpy(&key, g->key, sizeof key);
  cp_relax();
  return cp_real.cuCtxSetCurrent(c->context) == CUDA_SUCCESS && cp_weights_map(key) &&
         cp_weights_address(key) == (uint64_t)(uintptr_t)g->at;
}

static bool start(struct cp_groups *g, uint32_t k) {
  const struct carriage *c = g->carriage;
  uint64_t from = g->bounds[k], bytes = g->bounds[k + 1] - from;
  CUdeviceptr to = (CUdeviceptr)(uintptr_t)g->at + from;
  if (bytes && cp_real.cuMemcpyHtoDAsync_v2(to, g->from + from, bytes, c->stream) != CUDA_SUCCESS) return false;
  if (cp_real.cuEventRecord(c->events[k], c->stream) != CUDA_SUCCESS) return false;
  cp_store(&g->open[k], 1);
  cp_groups_wake(g);
  return true;
}

static bool finish(struct cp_groups *g, uint32_t k) {
  const struct carriage *c = g->carriage;
  return cp_real.cuEventSynchronize(c->events[k]) == CUDA_SUCCESS;
}

/* ---- open and close -------------------------------------------------------------------------------------------------------- */

static int make(struct cp_groups *g, struct carriage *c) {
  const unsigned int flags = CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC;
  if (!(c->events = calloc(g->count, sizeof *c->events))) return ENOMEM;
  if (cp_real.cuCtxGetCurrent(&c->context) != CUDA_SUCCESS || !c->context) return ENODEV;
  if (cp_real.cuStreamCreate(&c->stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS) return ENOMEM;
  for (uint32_t k = 0; k < g->count; k++)
    if (cp_real.cuEventCreate(&c->events[k], flags) != CUDA_SUCCESS) return ENOMEM;
  void *image = (void *)(uintptr_t)g->from;
  c->pinned = cp_real.cuMemHostRegister_v2(image, g->bytes, CU_MEMHOSTREGISTER_READ_ONLY) == CUDA_SUCCESS;
  if (!c->pinned) warn();
  return 0;
}

static int open_(struct cp_groups *g) {
  struct carriage *c = g->carriage = calloc(1, sizeof *c);
  return c ? make(g, c) : ENOMEM;
}

static void close_(struct cp_groups *g) {
  struct carriage *c = g->carriage;
  CUcontext before;
  if (!c) return;
  if (c->context && cp_real.cuCtxPushCurrent_v2(c->context) == CUDA_SUCCESS) {
    if (c->pinned) cp_real.cuMemHostUnregister((void *)(uintptr_t)g->from);
    for (uint32_t k = 0; k < g->count; k++)
      if (c->events && c->events[k]) cp_real.cuEventDestroy_v2(c->events[k]);
    if (c->stream) cp_real.cuStreamDestroy_v2(c->stream);
    cp_real.cuCtxPopCurrent_v2(&before);
  }
  free(c->events);
  free(c);
}

static const struct cp_carrier carrier = {.open = open_, .close = close_, .ready = ready, .start = start, .finish = finish};

/* As cp_groups_open; `header` is a file of which only the header is used, the groups come to `address` on the device.  A
 * context of the driver is current. */
CP_EXPORT struct cp_groups *cp_groups_open_on_device(int header, int image, const uint64_t *bounds, uint32_t count,
                                                     const uint8_t *key, uint64_t address) {
  return cp_groups_make(&carrier, (char *)(uintptr_t)address, header, image, bounds, count, key);
}

/* ---- computing: who does not say what he needs ------------------------------------------------------------------------------- */

static struct cp_groups *guarded;

/* From now on, until NULL, they are computed with although some of them are on their way. */
CP_EXPORT void cp_groups_guard(struct cp_groups *g) {
  cp_store(&guarded, g);
  cp_shut_bit(CP_GUARD, g);
}

/* What this thread submits between two such calls comes after the groups that it needs. */
CP_EXPORT void cp_groups_operation(int begins) {
  struct cp_thread *t = cp_thread ? cp_thread : cp_thread_start();
  t->following = begins != 0;
}

/* Groups that nobody brings any more are an error of who follows them. */
void cp_groups_gate(const struct cp_thread *t) {
  struct cp_groups *g = cp_load(&guarded);
  if (g && !t->following) cp_groups_wait(g, g->count);
}

/* ---- computing ------------------------------------------------------------------------------------------------------------- */

/* Until it is there, or its copy has been started.  0, or ECANCELED. */
static int await_start(struct cp_groups *g, uint32_t k) {
  for (;;) {
    uint32_t sequence = cp_load(&g->header->sequence);
    bool busy = cp_load(&g->busy) == CP_GROUPS_BUSY;
    if (cp_groups_has(g, k) || cp_load(&g->due)) return 0;
    if (!busy) return ECANCELED;
    if (cp_load(&g->open[k])) return 0;
    cp_groups_sleep(g, sequence, -1);
  }
}

/* What is submitted to the stream from now on comes after the first n groups.  Waits only for copies that have not been
 * started yet; if the turn has been lost in the middle, the gate does.  0, ECANCELED (nobody here is bringing them, or that
 * has failed), or EIO. */
CP_EXPORT int cp_groups_follow(struct cp_groups *g, uint32_t n, void *stream) {
  const struct carriage *c = g->carriage;
  uint32_t last = g->count;
  for (uint32_t k = 0; k < n && k < g->count; k++) {
    int error = await_start(g, k);
    if (error) return error;
    if (!cp_groups_has(g, k)) last = k;
  }
  if (last == g->count || cp_load(&g->due)) return 0;
  cp_work_on(stream);
  return cp_real.cuStreamWaitEvent(stream, c->events[last], 0) == CUDA_SUCCESS ? 0 : EIO;
}
