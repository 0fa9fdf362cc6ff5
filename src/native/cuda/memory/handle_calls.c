/* Entry points for physical memory that the program makes itself: handles, mappings, access.
 *
 * Such a handle is ours if the job has memory by grant, and the memory is ordinary memory of the device.  To make, map or
 * open it needs the turn, with which all of the job's memory is there.  To give it back does not. */
#include "cuda/memory/driver_memory.h"
#include "cuda/memory/handles.h"
#include "cuda/memory/pools.h"

#define CALLER __builtin_return_address(0)

/* The turn, and the books. */
struct entered {
  struct cp_thread *thread;
  uint64_t leave;
};

static struct entered enter(void) {
  struct entered e = {0};
  e.thread = cp_enter(&e.leave);
  cp_handles_lock();
  return e;
}

static CUresult leave(struct entered e, CUresult r) {
  cp_handles_unlock();
  cp_leave(e.thread, e.leave);
  return r;
}

static bool ours(CUmemGenericAllocationHandle number) {
  cp_handles_lock();
  bool found = cp_handle_of(number) != NULL;
  cp_handles_unlock();
  return found;
}

static bool any_within(CUdeviceptr address, uint64_t bytes) {
  cp_handles_lock();
  struct cp_mapping *m = cp_mapping_from(address);
  bool found = m && m->address < address + bytes;
  cp_handles_unlock();
  return found;
}

/* ---- making ------------------------------------------------------------------------------------------------------------- */

/* A tile pool's memory is mapped by a call that takes handles within a structure. */
static bool ordinary(const CUmemAllocationProp *prop) {
  return prop && prop->type == CU_MEM_ALLOCATION_TYPE_PINNED && prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
         !prop->win32HandleMetaData && !prop->allocFlags.usage;
}

static CUresult make(CUmemGenericAllocationHandle *number, size_t bytes, const CUmemAllocationProp *prop,
                     unsigned long long flags) {
  struct entered e = enter();
  CUmemGenericAllocationHandle real;
  CUresult r = cp_real.cuMemCreate(&real, bytes, prop, flags);
  struct cp_handle *h = r == CUDA_SUCCESS ? cp_handle_new(real, bytes, prop) : NULL;
  if (h) *number = cp_handle_number(h), cp_handles_made((int64_t)bytes);
  if (r == CUDA_SUCCESS && !h) cp_real.cuMemRelease(real), r = CUDA_ERROR_OUT_OF_MEMORY;
  return leave(e, r);
}

/* What is granted may be free only a little later: others, or our own device buffer, have been cut. */
static CUresult make_patiently(CUmemGenericAllocationHandle *number, size_t bytes, const CUmemAllocationProp *prop,
                               unsigned long long flags) {
  CUresult r = make(number, bytes, prop, flags);
  for (uint64_t begin = cp_now_us(); r == CUDA_ERROR_OUT_OF_MEMORY && cp_now_us() - begin < CP_FAILING_US;) {
    cp_extents_take(false);
    syscall(SYS_nanosleep, &(struct timespec){.tv_nsec = CP_RETRY_US * 1000}, NULL);
    r = make(number, bytes, prop, flags);
  }
  return r;
}

static uint64_t counted(uint64_t bytes) { return cp_round_up(bytes, CP_PIECE); }

static CUresult create(CUmemGenericAllocationHandle *number, size_t bytes, const CUmemAllocationProp *prop,
                       unsigned long long flags) {
  if (!number || !bytes || bytes >> 40) return bytes && number ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_VALUE;
  if (!cp_pools_start() || !cp_handles_claim(counted(bytes))) return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult r = make_patiently(number, bytes, prop, flags);
  if (r != CUDA_SUCCESS) cp_handles_unclaim(counted(bytes), true);
  return r;
}

CP_GATE(cuMemCreate, CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *prop,
        unsigned long long flags) {
  cp_driver_start();
  if (CP_UNLIKELY(cp_load(&cp_shut) & CP_ASK)) cp_cuda_claim(); /* before it is decided whose memory this is */
  if (cp_segments_serve() && ordinary(prop)) return create(handle, bytes, prop, flags);
  bool device = prop && prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
  if (!device) return cp_real.cuMemCreate(handle, bytes, prop, flags);
  return CP_SHARE(bytes, cp_memory_came(cp_real.cuMemCreate(handle, bytes, prop, flags), CP_HANDLE, handle, bytes, CALLER));
}

/* ---- giving back: lock held; what has become free is returned by the caller ------------------------------------------------ */

static uint64_t drop(struct cp_handle *h) {
  struct cp_handle was;
  if (!cp_handle_over(h, &was)) return 0;
  if (was.real) cp_real.cuMemRelease(was.real), cp_handles_made(-(int64_t)was.bytes);
  return counted(was.bytes);
}

static void freed(uint64_t bytes) {
  if (bytes) cp_handles_unclaim(bytes, false);
}

static CUresult release(CUmemGenericAllocationHandle number) {
  uint64_t free_now = 0;
  cp_handles_lock();
  struct cp_handle *h = cp_handle_of(number);
  bool good = h && h->references;
  if (good) h->references--, free_now = drop(h);
  cp_handles_unlock();
  freed(free_now);
  return good ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CP_GATE(cuMemRelease, CUmemGenericAllocationHandle handle) {
  cp_driver_start();
  if (ours(handle)) return release(handle);
  cp_memory_released(handle);
  CUresult r = cp_real.cuMemRelease(handle);
  if (r == CUDA_SUCCESS) cp_share_trim(); /* the daemon may lend it to others at once */
  return r;
}

/* Mappings of the driver's own handles may lie between ours. */
static uint64_t forget(CUdeviceptr address, uint64_t bytes) {
  uint64_t free_now = 0;
  for (struct cp_mapping *m; (m = cp_mapping_from(address)) && m->address < address + bytes;) {
    struct cp_handle *h = m->handle;
    cp_mapping_remove(m);
    free_now += drop(h);
  }
  return free_now;
}

static CUresult unmap(CUdeviceptr address, size_t bytes) {
  uint64_t free_now = 0;
  cp_handles_lock();
  bool gone = cp_handles_away() && cp_mappings_cover(address, bytes); /* the driver has unmapped it already */
  bool later = cp_handles_away() && !gone;
  CUresult r = gone || later ? CUDA_SUCCESS : cp_real.cuMemUnmap(address, bytes);
  if (r == CUDA_SUCCESS && !later) free_now = forget(address, bytes);
  cp_handles_unlock();
  if (later) return leave(enter(), CUDA_SUCCESS), unmap(address, bytes);
  freed(free_now);
  return r;
}

CP_GATE(cuMemUnmap, CUdeviceptr address, size_t bytes) {
  cp_driver_start();
  if (any_within(address, bytes)) return unmap(address, bytes);
  CUresult r = cp_real.cuMemUnmap(address, bytes);
  if (r == CUDA_SUCCESS) cp_memory_unmapped(address, bytes);
  return r;
}

/* ---- mapping ------------------------------------------------------------------------------------------------------------ */

static CUresult map(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle number,
                    unsigned long long flags) {
  struct entered e = enter();
  struct cp_handle *h = cp_handle_of(number);
  CUresult r = h ? cp_real.cuMemMap(address, bytes, offset, h->real, flags) : CUDA_ERROR_INVALID_VALUE;
  struct cp_mapping new = {.address = address, .bytes = bytes, .offset = offset, .flags = flags, .handle = h};
  if (r == CUDA_SUCCESS && !cp_mapping_add(new)) cp_real.cuMemUnmap(address, bytes), r = CUDA_ERROR_OUT_OF_MEMORY;
  return leave(e, r);
}

CP_GATE(cuMemMap, CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
        unsigned long long flags) {
  cp_driver_start();
  if (ours(handle)) return map(address, bytes, offset, handle, flags);
  CUresult r = cp_real.cuMemMap(address, bytes, offset, handle, flags);
  if (r == CUDA_SUCCESS) cp_memory_mapped(address, bytes, handle);
  return r;
}

/* What cannot be repeated exactly later does not move. */
static void stays(struct cp_handle *h) {
  h->stays = 1;
  cp_traits(CP_TRAIT_SHARED);
}

/* For the whole of a mapping, and the device where it lies. */
static void note_access(struct cp_mapping *m, CUdeviceptr end, const CUmemAccessDesc *access, size_t count) {
  const CUmemLocation *own = &m->handle->prop.location;
  bool simple = count == 1 && access->location.type == own->type && access->location.id == own->id;
  if (!simple || m->address + m->bytes > end) stays(m->handle);
  m->access = *access;
  m->open = 1;
}

CP_GATE(cuMemSetAccess, CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access, size_t count) {
  cp_driver_start();
  if (!any_within(address, bytes)) return cp_real.cuMemSetAccess(address, bytes, access, count);
  struct entered e = enter();
  CUresult r = cp_real.cuMemSetAccess(address, bytes, access, count);
  struct cp_mapping *m = r == CUDA_SUCCESS ? cp_mapping_from(address) : NULL;
  if (m && m->address < address) stays(m->handle);
  for (; m && m->address < address + bytes; m = cp_mapping_next(m)) note_access(m, address + bytes, access, count);
  return leave(e, r);
}

/* ---- handles that others see ---------------------------------------------------------------------------------------------- */

/* One more reference, as of the driver's handle. */
static bool retain(CUmemGenericAllocationHandle *number, CUdeviceptr address) {
  cp_handles_lock();
  struct cp_mapping *m = cp_mapping_at(address);
  if (m) m->handle->references++, *number = cp_handle_number(m->handle);
  cp_handles_unlock();
  return m != NULL;
}

/* Not given away yet, but it stays where it is as long as the handle. */
CP_GATE(cuMemRetainAllocationHandle, CUmemGenericAllocationHandle *handle, void *address) {
  cp_driver_start();
  if (handle && retain(handle, (CUdeviceptr)(uintptr_t)address)) return CUDA_SUCCESS;
  CUresult r = cp_real.cuMemRetainAllocationHandle(handle, address);
  if (r == CUDA_SUCCESS) cp_traits(CP_TRAIT_SHARED);
  return r;
}

CUmemGenericAllocationHandle cp_handle_pinned(CUmemGenericAllocationHandle number) {
  if (!ours(number)) return number;
  struct entered e = enter();
  struct cp_handle *h = cp_handle_of(number);
  if (h) stays(h), number = h->real;
  return leave(e, CUDA_SUCCESS), number;
}

CUdeviceptr cp_mappings_pinned(CUdeviceptr address, uint64_t bytes) {
  if (!any_within(address, bytes)) return address;
  struct entered e = enter();
  struct cp_mapping *m = cp_mapping_from(address);
  for (; m && m->address < address + bytes; m = cp_mapping_next(m)) stays(m->handle);
  return leave(e, CUDA_SUCCESS), address;
}

CP_GATE(cuMemGetAllocationPropertiesFromHandle, CUmemAllocationProp *prop, CUmemGenericAllocationHandle handle) {
  cp_driver_start();
  cp_handles_lock();
  struct cp_handle *h = cp_handle_of(handle);
  if (h && prop) *prop = h->prop;
  cp_handles_unlock();
  return h && prop ? CUDA_SUCCESS : cp_real.cuMemGetAllocationPropertiesFromHandle(prop, handle);
}
