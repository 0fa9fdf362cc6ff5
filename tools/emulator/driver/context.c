/* Contexts: a primary one for each device, made ones, and each thread's stack of them. */
#include "stub.h"
#include <stdio.h>

enum { STACK = 32 };
static CUcontext contexts, primary[STUB_DEVICES];
static uint64_t next_id = 1;
static __thread CUcontext stack[STACK];
static __thread int top; /* number of contexts on the stack */

CUcontext stub_contexts(void) { return contexts; }

bool stub_context_valid(CUcontext context) {
  CUcontext at = contexts;
  while (at && at != context) at = at->next;
  return at && !at->destroyed;
}

CUresult stub_current(CUcontext *context) {
  if (!top || !stack[top - 1]) return CUDA_ERROR_INVALID_CONTEXT;
  *context = stack[top - 1];
  if ((*context)->destroyed) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  return __atomic_load_n(&(*context)->error, __ATOMIC_RELAXED);
}

/* A T4 has 16 GiB, and its context takes 426 MiB in all. */
static size_t first_part(int device) {
  const char *end;
  if (stub.context && *stub.context) return machine_size(stub.context, &end);
  size_t eighth = stub.device[device].bytes / 8, most = (size_t)512 << 20;
  return (eighth < most ? eighth : most) * 2 / 3 >> 12 << 12;
}

static CUresult grow(CUcontext context) {
  size_t bytes = context->parts ? context->overhead[0]->bytes / 8 >> 12 << 12 : first_part(context->device);
  CUresult result = CUDA_SUCCESS;
  if (bytes && context->parts < STUB_CONTEXT_PARTS) {
    struct stub_physical **part = &context->overhead[context->parts];
    result = stub_physical_new(stub.device[context->device].ordinal, bytes, STUB_ZERO, part);
    if (!result) (*part)->maps++, context->parts++;
  }
  return result;
}

CUresult stub_context_grow(CUcontext context) {
  stub_lock();
  CUresult result = grow(context);
  stub_unlock();
  return result;
}

/* EXCLUSIVE_PROCESS: who has a context holds a lock on a file of the device.  Lock held. */
static int exclusive[STUB_DEVICES]; /* its descriptor + 1 */

static CUresult admitted(int device) {
  int mode = machine_compute_mode();
  if (mode == MACHINE_DEFAULT || exclusive[device]) return CUDA_SUCCESS;
  if (mode == MACHINE_PROHIBITED) return CUDA_ERROR_DEVICE_UNAVAILABLE;
  char path[256];
  snprintf(path, sizeof path, "%s/exclusive.%d", stub.directory, stub.device[device].ordinal);
  int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB)) return close(fd), CUDA_ERROR_DEVICE_UNAVAILABLE;
  exclusive[device] = fd + 1;
  return CUDA_SUCCESS;
}

static void left(int device) {
  for (CUcontext at = contexts; at; at = at->next)
    if (at->device == device && !at->destroyed) return;
  if (exclusive[device]) close(exclusive[device] - 1);
  exclusive[device] = 0;
}

static CUresult make(CUcontext *context, unsigned flags, int device) {
  CUresult result = admitted(device);
  if (result) return result;
  CUcontext made = calloc(1, sizeof *made);
  *made = (struct CUctx_st){.device = device, .flags = flags, .id = next_id++, .next = contexts};
  result = grow(made);
  if (result) return free(made), left(device), result;
  contexts = *context = made;
  (*context)->legacy = stub_stream_new(*context, CU_STREAM_DEFAULT, 0);
  (*context)->legacy->is_legacy = true;
  return CUDA_SUCCESS;
}

static void free_memory(CUcontext context) {
  stub_ranges_lock();
  for (struct stub_range *range = stub_range_first(), *next; range; range = next) {
    next = range->next;
    if (range->context == context && range->physical) stub_device_free(range); /* none that cuMemMap made */
  }
  while (context->parts) {
    struct stub_physical *part = context->overhead[--context->parts];
    part->maps--, stub_physical_drop(part);
  }
  stub_ranges_unlock();
}

/* Waits for its work, then takes everything away.  The structure stays, so that late calls get a proper error. */
static void destroy(CUcontext context) {
  stub_context_drain(context);
  stub_lock();
  context->destroyed = true;
  stub_unlock();
  free_memory(context);
  stub_lock();
  left(context->device);
  stub_unlock();
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
  ENTER(cuDevicePrimaryCtxRetain);
  if (!context) return CUDA_ERROR_INVALID_VALUE;
  if (device < 0 || device >= stub.devices) return CUDA_ERROR_INVALID_DEVICE;
  stub_lock();
  CUresult result = CUDA_SUCCESS;
  if (!primary[device]) {
    result = make(&primary[device], 0, device);
    if (!result) primary[device]->primary = true;
  }
  if (!result) primary[device]->retained++;
  *context = primary[device];
  stub_unlock();
  return result;
}

static CUresult release(CUdevice device, bool all) {
  if (device < 0 || device >= stub.devices) return CUDA_ERROR_INVALID_DEVICE;
  stub_lock();
  CUcontext context = primary[device];
  if (!context) return stub_unlock(), all ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
  bool last = all || --context->retained == 0;
  if (last) primary[device] = NULL;
  stub_unlock();
  if (last) destroy(context);
  return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  ENTER(cuDevicePrimaryCtxRelease_v2);
  return release(device, false);
}
CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) {
  ENTER(cuDevicePrimaryCtxReset_v2);
  return release(device, true);
}
CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned int flags) {
  ENTER(cuDevicePrimaryCtxSetFlags_v2);
  if (device < 0 || device >= stub.devices) return CUDA_ERROR_INVALID_DEVICE;
  return flags > 0xff ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
FORWARD(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, (device), CUdevice device)
FORWARD(cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset_v2, (device), CUdevice device)
FORWARD(cuDevicePrimaryCtxSetFlags, cuDevicePrimaryCtxSetFlags_v2, (device, flags), CUdevice device, unsigned int flags)

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int *flags, int *active) {
  ENTER(cuDevicePrimaryCtxGetState);
  if (device < 0 || device >= stub.devices) return CUDA_ERROR_INVALID_DEVICE;
  stub_lock();
  *flags = primary[device] ? primary[device]->flags : 0;
  *active = primary[device] != NULL;
  stub_unlock();
  return CUDA_SUCCESS;
}

static CUresult push(CUcontext context) {
  stub_lock();
  bool valid = stub_context_valid(context);
  stub_unlock();
  if (!valid || top == STACK) return CUDA_ERROR_INVALID_CONTEXT;
  stack[top++] = context;
  return CUDA_SUCCESS;
}

CUresult cuCtxCreate_v4(CUcontext *context, CUctxCreateParams *params, unsigned int flags, CUdevice device) {
  ENTER(cuCtxCreate_v4);
  (void)params;
  if (!context) return CUDA_ERROR_INVALID_VALUE;
  if (device < 0 || device >= stub.devices) return CUDA_ERROR_INVALID_DEVICE;
  stub_lock();
  CUresult result = make(context, flags, device);
  stub_unlock();
  return result ? result : push(*context);
}
FORWARD(cuCtxCreate_v2, cuCtxCreate_v4, (context, NULL, flags, device), CUcontext *context, unsigned int flags, CUdevice device)
CUresult cuCtxCreate_v3(CUcontext *context, CUexecAffinityParam *params, int count, unsigned int flags, CUdevice device) {
  ENTER(cuCtxCreate_v3);
  return params || count ? CUDA_ERROR_NOT_SUPPORTED : cuCtxCreate_v4(context, NULL, flags, device);
}

CUresult cuCtxDestroy_v2(CUcontext context) {
  ENTER(cuCtxDestroy_v2);
  stub_lock();
  bool valid = stub_context_valid(context) && !context->primary;
  stub_unlock();
  if (!valid) return CUDA_ERROR_INVALID_CONTEXT;
  if (top && stack[top - 1] == context) top--;
  destroy(context);
  return CUDA_SUCCESS;
}
CUresult cuCtxPushCurrent_v2(CUcontext context) {
  ENTER(cuCtxPushCurrent_v2);
  return push(context);
}
CUresult cuCtxPopCurrent_v2(CUcontext *context) {
  ENTER(cuCtxPopCurrent_v2);
  if (!top) return CUDA_ERROR_INVALID_CONTEXT;
  top--;
  if (context) *context = stack[top];
  return CUDA_SUCCESS;
}
FORWARD(cuCtxDestroy, cuCtxDestroy_v2, (context), CUcontext context)
FORWARD(cuCtxPushCurrent, cuCtxPushCurrent_v2, (context), CUcontext context)
FORWARD(cuCtxPopCurrent, cuCtxPopCurrent_v2, (context), CUcontext *context)

CUresult cuCtxSetCurrent(CUcontext context) {
  ENTER(cuCtxSetCurrent);
  if (top) top--;
  return context ? push(context) : CUDA_SUCCESS;
}
CUresult cuCtxGetCurrent(CUcontext *context) {
  ENTER(cuCtxGetCurrent);
  if (!context) return CUDA_ERROR_INVALID_VALUE;
  *context = top ? stack[top - 1] : NULL;
  return CUDA_SUCCESS;
}
