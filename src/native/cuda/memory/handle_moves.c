/* Memory that the program makes itself moves out of the device and comes back.
 *
 * All of it at once, while the gate is closed.  Its content is copied through addresses of our own, so it does not matter
 * where the program has mapped it, or whether it has.  Then every mapping goes, and every handle, so that the driver has
 * the memory for others.  With its next turn the job has the same again: new memory, the same addresses, the same access. */
#include "base/core_dump.h"
#include "cuda/turn/tracked_objects.h"
#include "cuda/memory/handles.h"
#include "cuda/memory/grant.h"

#include <string.h>
#include <unistd.h>

/* Gate lock and the books' of handles. */
static uint32_t away;
static struct {
  char *host; /* the content */
  uint64_t bytes;
  bool pinned;
} saved;
static CUdeviceptr window; /* while content is copied */
static CUresult trouble;

bool cp_handles_away(void) { return cp_load(&away); }

void cp_handles_forget_moves(void) {
  away = 0;
  memset(&saved, 0, sizeof saved);
}

/* ---- the copies --------------------------------------------------------------------------------------------------------- */

static uint64_t lay_out(void) {
  uint64_t total = 0;
  for (struct cp_handle *h = cp_handle_next(NULL); h; h = cp_handle_next(h)) {
    h->place = total;
    total += h->bytes;
  }
  return total;
}

/* Up to a place.  Those of handles that are gone are empty. */
static void unmap_window(uint64_t end) {
  for (struct cp_handle *h = cp_handle_next(NULL); h && h->place < end; h = cp_handle_next(h))
    cp_real.cuMemUnmap(window + h->place, h->bytes);
  cp_real.cuMemAddressFree(window, saved.bytes);
  window = 0;
}

static CUresult map_into_window(const struct cp_handle *h) {
  CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, h->prop.location.id}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CUresult r = cp_real.cuMemMap(window + h->place, h->bytes, 0, h->real, 0);
  if (r != CUDA_SUCCESS) return r;
  r = cp_real.cuMemSetAccess(window + h->place, h->bytes, &access, 1);
  if (r != CUDA_SUCCESS) cp_real.cuMemUnmap(window + h->place, h->bytes);
  return r;
}

/* Everything one after another, as it is saved. */
static CUresult open_window(void) {
  CUresult r = cp_real.cuMemAddressReserve(&window, saved.bytes, 0, 0, 0);
  uint64_t end = 0;
  if (r != CUDA_SUCCESS) return window = 0, r;
  for (struct cp_handle *h = cp_handle_next(NULL); h && r == CUDA_SUCCESS; h = cp_handle_next(h)) {
    r = map_into_window(h);
    if (r == CUDA_SUCCESS) end = h->place + h->bytes;
  }
  if (r != CUDA_SUCCESS) unmap_window(end);
  return r;
}

static CUresult close_window(void) {
  if (window) unmap_window(saved.bytes);
  return CUDA_SUCCESS;
}

static CUresult copy(CUstream stream, bool out) {
  CUresult r = CUDA_SUCCESS;
  for (struct cp_handle *h = cp_handle_next(NULL); h && r == CUDA_SUCCESS; h = cp_handle_next(h)) {
    CUdeviceptr at = window + h->place;
    char *host = saved.host + h->place;
    r = out ? cp_real.cuMemcpyDtoHAsync_v2(host, at, h->bytes, stream)
            : cp_real.cuMemcpyHtoDAsync_v2(at, host, h->bytes, stream);
  }
  return r;
}

/* Where it cannot be pinned the copies take longer. */
static CUresult copy_out(CUstream stream) {
  saved.pinned = cp_real.cuMemHostRegister_v2(saved.host, saved.bytes, CU_MEMHOSTREGISTER_PORTABLE) == CUDA_SUCCESS;
  return copy(stream, true);
}
static CUresult copy_in(CUstream stream) { return copy(stream, false); }

static CUresult unpin(CUstream stream) {
  (void)stream;
  return cp_real.cuMemHostUnregister(saved.host);
}

static void drop_saved(bool helper) {
  if (saved.pinned) cp_residue_copied(unpin, helper);
  if (saved.host) munmap(saved.host, saved.bytes);
  saved.host = NULL;
  saved.pinned = false;
}

/* ---- out ---------------------------------------------------------------------------------------------------------------- */

/* Of the host's memory, a quarter is not ours to take. */
static bool too_much(uint64_t bytes) {
  return bytes > (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE) / 4 * 3;
}

static bool make_room(uint64_t bytes) {
  void *host = too_much(bytes) ? MAP_FAILED : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (host == MAP_FAILED) return false;
  madvise(host, bytes, MADV_DONTFORK); /* a child's copy would move what the device writes to */
  cp_leave_out_of_cores(host, bytes);
  saved.host = host;
  saved.bytes = bytes;
  return true;
}

static bool any_stays(void) {
  for (struct cp_handle *h = cp_handle_next(NULL); h; h = cp_handle_next(h))
    if (h->stays) return true;
  return false;
}

/* The helper thread calls the driver unless the process is about to end. */
static CUresult guarded(CUresult (*step)(void)) {
  cp_acquire(&cp_books.lock);
  CUresult r = cp_drain_stopped ? CUDA_ERROR_DEINITIALIZED : step();
  cp_release(&cp_books.lock);
  return r;
}

static int save(void) {
  if (!make_room(lay_out())) return ENOMEM;
  CUresult r = guarded(open_window);
  if (r == CUDA_SUCCESS) r = cp_residue_copied(copy_out, true);
  guarded(close_window);
  if (r != CUDA_SUCCESS) drop_saved(true);
  return r == CUDA_SUCCESS ? 0 : EIO;
}

static CUresult let_go(void) {
  CUresult r = CUDA_SUCCESS;
  for (struct cp_mapping *m = cp_mapping_next(NULL); m; m = cp_mapping_next(m))
    if (cp_real.cuMemUnmap(m->address, m->bytes) != CUDA_SUCCESS) r = CUDA_ERROR_INVALID_VALUE;
  for (struct cp_handle *h = cp_handle_next(NULL); h; h = cp_handle_next(h)) {
    if (cp_real.cuMemRelease(h->real) != CUDA_SUCCESS) r = CUDA_ERROR_INVALID_VALUE;
    h->real = 0;
  }
  return r;
}

static void release(void) {
  CUresult r = guarded(let_go);
  if (r == CUDA_ERROR_DEINITIALIZED) return;
  if (r != CUDA_SUCCESS) cp_give_up("memory that it has made cannot be released");
  cp_handles_made(-(int64_t)saved.bytes);
  cp_store(&away, 1);
}

/* Returns 0 or an errno: nothing has changed. */
static int move_out(void) {
  if (cp_handles_away() || !cp_handle_next(NULL)) return 0;
  if (any_stays()) return EBUSY;
  uint64_t begin = cp_now_us();
  int error = save();
  if (error) return error;
  release();
  if (!cp_handles_away()) return EIO;
  cp_put(&cp.seat->out_bytes, cp.seat->out_bytes + saved.bytes);
  cp_put(&cp.seat->out_us, cp.seat->out_us + (cp_now_us() - begin));
  return 0;
}

/* The daemon may have withdrawn its request. */
static void answer(int error) {
  uint32_t asked = CP_OFFLOAD_ASKED, next = error ? CP_OFFLOAD_NO : CP_OFFLOAD_DONE;
  if (error) cp_put(&cp.seat->offload_error, (uint32_t)error);
  if (__atomic_compare_exchange_n(&cp.seat->offload, &asked, next, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
    cp_send(CP_OFFLOADED, (uint64_t)error, 0, 0, 0);
}

static bool may_move(void) { return !cp_load(&cp.seat->turn) && cp.gate == CP_CLOSED; } /* the end of a turn rings */

void cp_handles_offload(void) {
  cp_acquire(&cp.gate_lock);
  if (may_move()) {
    CUstreamCaptureMode mode = cp_relax();
    cp_handles_lock();
    answer(move_out());
    cp_handles_unlock();
    cp_unrelax(mode);
  }
  cp_release(&cp.gate_lock);
}

/* ---- back --------------------------------------------------------------------------------------------------------------- */

static void release_all(void) {
  for (struct cp_handle *h = cp_handle_next(NULL); h; h = cp_handle_next(h)) {
    if (h->real) cp_real.cuMemRelease(h->real);
    h->real = 0;
  }
}

static CUresult make_all(void) {
  CUresult r = CUDA_SUCCESS;
  for (struct cp_handle *h = cp_handle_next(NULL); h && r == CUDA_SUCCESS; h = cp_handle_next(h)) {
    r = cp_real.cuMemCreate(&h->real, h->bytes, &h->prop, 0);
    if (r != CUDA_SUCCESS) h->real = 0;
  }
  return r;
}

/* What the program has released since is not there any more, and has left its place empty. */
static CUresult fill_all(void) {
  CUresult r = open_window();
  if (r == CUDA_SUCCESS) r = cp_residue_copied(copy_in, false);
  close_window();
  return r;
}

static CUresult map_all(void) {
  CUresult r = CUDA_SUCCESS;
  for (struct cp_mapping *m = cp_mapping_next(NULL); m && r == CUDA_SUCCESS; m = cp_mapping_next(m)) {
    r = cp_real.cuMemMap(m->address, m->bytes, m->offset, m->handle->real, m->flags);
    if (r == CUDA_SUCCESS && m->open) r = cp_real.cuMemSetAccess(m->address, m->bytes, &m->access, 1);
  }
  return r;
}

static bool tried(void) {
  trouble = make_all();
  if (trouble == CUDA_SUCCESS) trouble = fill_all();
  if (trouble != CUDA_SUCCESS) release_all();
  return trouble != CUDA_ERROR_OUT_OF_MEMORY;
}

static uint64_t present(void) {
  uint64_t bytes = 0;
  for (struct cp_handle *h = cp_handle_next(NULL); h; h = cp_handle_next(h)) bytes += h->bytes;
  return bytes;
}

static void bring_back(void) {
  uint64_t begin = cp_now_us(), bytes = present();
  if (bytes) cp_until(tried, begin, CP_FAILING_US);
  if (bytes && trouble == CUDA_SUCCESS) trouble = map_all();
  if (bytes && trouble != CUDA_SUCCESS && !cp_load(&cp_drain_stopped)) cp_give_up("memory that it has made cannot be made again");
  drop_saved(false);
  cp_store(&away, 0);
  cp_handles_made((int64_t)bytes);
  cp_put(&cp.seat->in_bytes, cp.seat->in_bytes + bytes);
  cp_put(&cp.seat->in_us, cp.seat->in_us + (cp_now_us() - begin));
}

void cp_handles_restore(void) {
  if (CP_LIKELY(!cp_handles_away())) return;
  CUstreamCaptureMode mode = cp_relax();
  cp_handles_lock();
  bring_back();
  cp_handles_unlock();
  cp_unrelax(mode);
}
