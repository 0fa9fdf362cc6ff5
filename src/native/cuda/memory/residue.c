/* Residue: live ephemeral content, kept while other jobs use the lane.  It is copied to unused memory of the job's
 * device buffer if there is enough, otherwise to pinned host memory, which is kept for the next time.
 *
 * Copies run on a stream of our own, in a context of the program's.  Like all that the helper thread asks of the driver
 * they are made under the books' lock, and asked after, not waited for. */
#include "base/core_dump.h"
#include "cuda/turn/tracked_objects.h"
#include "cuda/memory/grant.h"

#include <string.h>
#include <unistd.h>

#define HOST_UNIT (32 * CP_MIB)

/* Books' lock held.  They go when the context goes. */
static struct {
  CUcontext context;
  CUstream stream;
  char *host;
  size_t host_bytes;
} ours;

/* Gate lock held. */
static enum { NOWHERE = 0, ON_DEVICE, ON_HOST } place;
static CUdeviceptr spare;
static const struct cp_live_run *runs;
static size_t count;
static uint64_t bytes;
static bool leaving; /* the helper thread is at work, which must not call the driver while the process ends */

uint64_t cp_residue_bytes(void) { return place ? bytes : 0; }

void cp_residue_drop(CUcontext context) {
  if (ours.context == context) memset(&ours, 0, sizeof ours);
}

/* ---- in our context, books' lock held --------------------------------------------------------------------------------- */

static bool usable(CUcontext context) {
  for (uint32_t i = 0; i < cp_books.context_count; i++)
    if (cp_books.contexts[i].context == context) return cp_context_usable(&cp_books.contexts[i]);
  return false;
}

static void choose_context(void) {
  if (ours.context && !usable(ours.context)) cp_residue_drop(ours.context);
  for (uint32_t i = 0; i < 2 * cp_books.context_count && !ours.context; i++) { /* primary ones stay longest */
    const struct cp_context *c = &cp_books.contexts[i % cp_books.context_count];
    bool primary = c->device != NO_DEVICE;
    if (primary == (i < cp_books.context_count) && cp_context_usable(c)) ours.context = c->context;
  }
}

/* Books' lock held. */
static CUresult find_context(void) {
  if (leaving && cp_drain_stopped) return CUDA_ERROR_INVALID_CONTEXT;
  if (cp_books.goings) return CUDA_ERROR_NOT_READY;
  choose_context();
  return ours.context ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

/* Returns what `act` does, or why it could not be asked. */
static CUresult in_context(CUresult (*act)(void)) {
  CUcontext before;
  cp_acquire(&cp_books.lock);
  CUresult r = find_context();
  if (r == CUDA_SUCCESS) r = cp_real.cuCtxPushCurrent_v2(ours.context);
  if (r == CUDA_SUCCESS) {
    if (!ours.stream) r = cp_real.cuStreamCreate(&ours.stream, CU_STREAM_NON_BLOCKING);
    if (r == CUDA_SUCCESS) r = act();
    cp_real.cuCtxPopCurrent_v2(&before);
  }
  cp_release(&cp_books.lock);
  return r;
}

/* For the host: pinned memory is lost to everybody else. */
static bool too_much(uint64_t size) {
  return size > (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE) / 2;
}

/* Pinning takes time for each byte, so what grows slowly is not pinned anew each time.  Where half as much again cannot be
 * had, the next try finds no buffer and makes one that is no larger than needed. */
static CUresult make_host_room(void) {
  CUresult r = CUDA_SUCCESS;
  if (ours.host_bytes >= bytes) return r;
  if (too_much(bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  uint64_t half_more = ours.host_bytes / 2 * 3;
  size_t size = cp_round_up(half_more > bytes && !too_much(half_more) ? half_more : bytes, HOST_UNIT);
  if (ours.host) cp_real.cuMemFreeHost(ours.host);
  ours.host = NULL;
  ours.host_bytes = 0;
  void *host;
  r = cp_real.cuMemHostAlloc(&host, size, CU_MEMHOSTALLOC_PORTABLE);
  if (r != CUDA_SUCCESS) return r;
  cp_leave_out_of_cores(host, size);
  ours.host = host;
  ours.host_bytes = size;
  return r;
}

static CUresult copy_run(CUdeviceptr live, uint64_t at, uint64_t length, bool out) {
  if (place == ON_DEVICE)
    return out ? cp_real.cuMemcpyDtoDAsync_v2(spare + at, live, length, ours.stream)
               : cp_real.cuMemcpyDtoDAsync_v2(live, spare + at, length, ours.stream);
  return out ? cp_real.cuMemcpyDtoHAsync_v2(ours.host + at, live, length, ours.stream)
             : cp_real.cuMemcpyHtoDAsync_v2(live, ours.host + at, length, ours.stream);
}

/* What is not mapped any more has been freed since. */
static CUresult copy(bool out) {
  CUresult r = place == ON_HOST && !ours.host ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_SUCCESS;
  uint64_t at = 0, mapped = cp_extents_mapped(1);
  for (size_t i = 0; r == CUDA_SUCCESS && i < count && runs[i].start < mapped; at += runs[i++].length) {
    uint64_t room = mapped - runs[i].start, length = runs[i].length < room ? runs[i].length : room;
    r = copy_run(cp_extents_base(1) + runs[i].start, at, length, out);
  }
  return r;
}

static CUresult copy_out(void) { return copy(true); }
static CUresult copy_back(void) { return copy(false); }
static CUresult (*others_copy)(CUstream stream);
static CUresult copy_others(void) { return others_copy(ours.stream); }
static CUresult ask_stream(void) { return cp_real.cuStreamQuery(ours.stream); }
static CUresult ask_context(void) { return cp_real.cuStreamQuery(CU_STREAM_LEGACY); }

static CUresult (*wanted)(void);
static CUresult answer;
static bool answered(void) { return (answer = in_context(wanted)) != CUDA_ERROR_NOT_READY; }

/* Until it is ready: a context may be going just now. */
static CUresult insist(CUresult (*act)(void)) {
  wanted = act;
  cp_until(answered, cp_now_us(), UINT64_MAX);
  return answer;
}

static CUresult copied(CUresult (*submit)(void)) {
  CUresult r = insist(submit), ended = insist(ask_stream);
  return r != CUDA_SUCCESS ? r : ended;
}

/* For what the program makes itself (handle_moves.c): the same stream. */
CUresult cp_residue_copied(CUresult (*submit)(CUstream stream), bool helper) {
  leaving = helper;
  others_copy = submit;
  return copied(copy_others);
}

static CUresult brought;
static bool copied_back(void) { return (brought = copied(copy_back)) != CUDA_ERROR_OUT_OF_MEMORY; }

/* An error of the program's, or no context any more: it cannot miss its content. */
static bool hopeless(void) {
  CUresult r = in_context(ask_context);
  return r != CUDA_SUCCESS && r != CUDA_ERROR_NOT_READY && r != CUDA_ERROR_OUT_OF_MEMORY;
}

/* ---- a share of persistent memory for it ------------------------------------------------------------------------------
 *
 * On the device residue costs two copies there; where the device buffer has no room it goes over the bus, at every
 * switch.  A job to which that keeps happening asks for more persistent memory, without waiting for the answer.  All
 * of it by the helper thread, which alone ends turns. */

#define LEAST (8 * CP_MIB) /* less is not worth the memory */
#define MISSES 3u          /* ends of turns in a row; doubled with each request, up to */
#define MOST_MISSES 192u

static uint32_t misses, patience = MISSES;
static uint64_t missed; /* bytes of the latest residue that went to the host, once they have been asked for */

static void note_place(bool on_device, uint64_t size) {
  bool miss = !on_device && size >= LEAST;
  misses = miss ? misses + 1 : 0;
  missed = 0;
  if (on_device) patience = MISSES;
}

void cp_room_ask(void) {
  uint64_t size = cp_round_up(cp_residue_bytes(), CP_PIECE);
  if (misses < patience || !cp_grow_settle()) return;
  misses = 0;
  patience = patience < MOST_MISSES ? 2 * patience : MOST_MISSES;
  missed = size;
  cp_grow_ask(0, cp_segments_extent(0) + cp_handles_granted() + size);
}

uint64_t cp_room_kept(void) { return missed; }

/* ---- out and back ------------------------------------------------------------------------------------------------------ */

static bool find_place(void) {
  spare = cp_segments_spare(bytes);
  place = spare ? ON_DEVICE : ON_HOST;
  return spare || insist(make_host_room) == CUDA_SUCCESS;
}

static void leave_place(void) {
  if (place == ON_DEVICE) cp_segments_spared();
  place = NOWHERE;
}

void cp_residue_forget(void) {
  if (place) leave_place();
}

bool cp_residue_save(void) {
  if (!cp_segments_serve()) return true;
  leaving = true;
  runs = cp_live_runs(&count);
  bytes = 0;
  for (size_t i = 0; i < count; i++) bytes += runs[i].length;
  if (!bytes) {
    note_place(false, 0);
    return true;
  }
  if (find_place() && copied(copy_out) == CUDA_SUCCESS) {
    note_place(place == ON_DEVICE, bytes);
    return true;
  }
  leave_place();
  if (!cp_drain_stopped && hopeless()) return true;
  cp_failure = too_much(bytes) ? "residue is larger than half of the host's memory" : "no memory to save residue";
  return false;
}

void cp_residue_restore(void) {
  if (!place) return;
  leaving = false;
  CUstreamCaptureMode mode = cp_relax();
  cp_until(copied_back, cp_now_us(), CP_FAILING_US);
  if (brought != CUDA_SUCCESS && !hopeless()) cp_give_up("saved content cannot be copied back");
  cp_unrelax(mode);
  leave_place();
}
