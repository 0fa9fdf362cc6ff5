/* Out of the device buffer, into the host store: the helper thread's part of an offload, and giving the store's memory
 * back. */
#include "base/process.h"

/* The daemon may write its next request, or take a shim's answer for ours, at any time: that stays. */
static bool leave_state(uint32_t from, uint32_t to) {
  return __atomic_compare_exchange_n(&cp.seat->offload, &from, to, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

static void answer(int error) {
  struct cp_seat *s = cp.seat;
  struct cp_host *h = &cp.arenas.host;
  cp_arenas_recount(&cp.arenas);
  uint64_t stored = h->stored;
  cp_put(&s->stored, stored);
  cp_put(&s->store_bytes, h->chunks ? cp_host_memory(h) : 0);
  if (error) {
    cp_put(&s->offload_error, (uint32_t)error);
  } else {
    cp.moved_out = true;
    cp_store(&s->offloaded, 1);
  }
  /* After an error it can be asked again. */
  if (leave_state(CP_OFFLOAD_ASKED, error ? CP_OFFLOAD_NO : CP_OFFLOAD_DONE))
    cp_send(CP_OFFLOADED, (uint64_t)error, stored, 0, 0);
}

/* What is alive is noted. */
static int move_out(void) {
  struct cp_seat *s = cp.seat;
  struct cp_host *h = &cp.arenas.host;
  uint64_t begin = cp_now_us(), before = h->stored;
  int error = cp_arenas_offload(&cp.arenas) ? errno : 0;
  cp_put(&s->out_bytes, s->out_bytes + (h->stored - before));
  cp_put(&s->out_us, s->out_us + (cp_now_us() - begin));
  return error;
}

/* Gate lock held.  Is there something to answer, and may this thread do it?  Takes the mover's lock then. */
static bool ready(void) {
  if (cp_load(&cp.seat->turn) || cp.gate != CP_CLOSED) return false; /* the end of the turn rings */
  if (cp_fork_pending()) cp_fork_settle();
  cp_host_lock(&cp.arenas.host);
  if (cp_load(&cp.seat->offload) == CP_OFFLOAD_ASKED) return true;
  cp_host_unlock(&cp.arenas.host); /* the shim was faster */
  return false;
}

/* The allocator is free again while the bytes are copied: what comes alive meanwhile has no content yet.
 * The same is true of what has come alive since the job moved out, whose device buffer is no longer its own. */
void cp_offload(void) {
  struct cp_host *h = &cp.arenas.host;
  cp_acquire(&cp.pool_lock);
  cp_acquire(&cp.gate_lock);
  bool answers = ready(), out = answers && cp_is_out();
  if (answers && !out) cp_arenas_note_alive(&cp.arenas);
  cp_release(&cp.pool_lock);
  if (answers) {
    answer(!h->chunks ? ENOSYS : out ? 0 : move_out());
    cp_host_unlock(h);
  }
  cp_release(&cp.gate_lock);
}

void cp_offload_drop(void) {
  struct cp_host *h = &cp.arenas.host;
  cp_acquire(&cp.gate_lock);
  bool lock = cp.gate == CP_CLOSED; /* otherwise it is held */
  if (lock) cp_host_lock(h);
  /* With something in the store a restore is under way: when it has ended. */
  if (cp_load(&cp.seat->offload) == CP_OFFLOAD_DROP && cp_host_next(h, 0) == h->chunks) {
    if (h->chunks) cp_host_drop_all(h);
    cp_put(&cp.seat->store_bytes, 0);
    leave_state(CP_OFFLOAD_DROP, CP_OFFLOAD_NO);
  }
  if (lock) cp_host_unlock(h);
  cp_release(&cp.gate_lock);
}
