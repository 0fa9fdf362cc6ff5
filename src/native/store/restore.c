/* Back from the host store: computing goes on with the first chunk, the rest follows in the order in which it was used
 * after earlier restores.  A thread brings a chunk that it touches; the helper thread brings the rest.
 * All of it under the gate lock, and under the mover's lock, which is held from the grant to the end of the turn. */
#include "base/process.h"

#include <sched.h>

#define BATCH 4u               /* chunks that are opened in one step: about a millisecond */
#ifndef LESSON_US
#define LESSON_US 1000000u     /* so long after everything is back what was not touched stays shut */
#endif
#define TORN_US 10000

/* The seat's word alone does not tell: the daemon writes it for a shim that has taken the content, perhaps after a turn
 * that has begun since.  What a shim has taken since the last restore is in the store without our having noted it. */
bool cp_is_out(void) {
  if (cp.gate != CP_CLOSED) return false;
  if (cp.moved_out || cp_load(&cp.seat->bank) != cp.buffer) return true;
  return cp_load(&cp.seat->offloaded) && cp_host_taken(&cp.arenas.host);
}

/* Gate lock held, arenas closed. */
size_t cp_restore_begin(void) {
  struct cp_seat *s = cp.seat;
  struct cp_arenas *a = &cp.arenas;
  if (!a->host.chunks) return 0;
  bool returns = cp_is_out();
  size_t left = cp_arenas_restore_begin(a);
  if (returns || cp.buffer_new) {
    uint64_t limit = cp_load(&s->p_limit);
    cp_arenas_clear_buffer(a, limit > a->retired ? limit - a->retired : 0);
    cp.buffer_new = false;
  }
  if (returns && left) cp_order_begin(&cp.order, &a->host);
  cp_put(&s->stored, a->host.stored);
  cp_store(&s->offloaded, 0);
  cp.moved_out = false;
  cp.restored_us = 0;
  return left;
}

static void bring(size_t chunk) {
  struct cp_seat *s = cp.seat;
  uint64_t begin = cp_now_us(), bytes = cp_host_bytes(&cp.arenas.host, chunk);
  cp_arenas_bring(&cp.arenas, chunk);
  cp_put(&s->stored, cp.arenas.host.stored);
  cp_put(&s->in_bytes, s->in_bytes + bytes);
  cp_put(&s->in_us, s->in_us + (cp_now_us() - begin));
  bool drop = cp_load(&s->offload) == CP_OFFLOAD_DROP;
  if (drop && cp_host_next(&cp.arenas.host, 0) == cp.arenas.host.chunks) cp_notify(s);
}

/* There are not enough mappings left for pieces. */
static void all_at_once(void) {
  struct cp_host *h = &cp.arenas.host;
  for (size_t k = cp_host_next(h, 0); k < h->chunks; k = cp_host_next(h, k + 1)) bring(k);
  cp_arenas_restore_begin(&cp.arenas);
  if (cp_arenas_open(&cp.arenas)) cp_store(&cp.gate, CP_HELD); /* the next touch tries again */
}

/* Gate lock held.  first: the touch that brought the job back, gate not yet open. */
void cp_restore_touch(const void *address, bool first) {
  struct cp_arenas *a = &cp.arenas;
  size_t chunk = cp_arenas_chunk(a, address);
  if (!cp_arenas_is_shut(a, chunk)) return;
  if (cp_host_has(&a->host, chunk)) {
    if (!first) cp_put(&cp.seat->demanded, cp.seat->demanded + 1);
    cp_order_demand(&cp.order, chunk, first);
    bring(chunk);
  }
  if (cp.order.learning) cp_order_note(&cp.order, chunk);
  if (cp_arenas_admit(a, chunk, 1)) all_at_once();
}

/* ---- the helper's part --------------------------------------------------------------------------------------------- */

static bool window_begins(size_t chunk) { return chunk * CP_CHUNK % cp.arenas.window == 0; }

/* Chunks that follow each other in the plan and in memory, until a thread needs another one.  Returns how many. */
static size_t bring_batch(size_t first) {
  size_t n = 0;
  do bring(first + n++);
  while (n < BATCH && !window_begins(first + n) && !cp_load(&cp.demanding) &&
         cp_order_next(&cp.order, &cp.arenas.host) == first + n);
  return n;
}

/* The lesson is over: what was not touched is opened. */
static void open_rest(void) {
  struct cp_host *h = &cp.arenas.host;
  for (size_t k = 0, n; k < h->chunks && h->shut_chunks; k += n ? n : 1) {
    for (n = 0; k + n < h->chunks && h->shut[k + n] && (!n || !window_begins(k + n));) n++;
    if (n && cp_arenas_admit(&cp.arenas, k, n)) return all_at_once();
  }
}

static int64_t step(void) {
  struct cp_host *h = &cp.arenas.host;
  uint64_t now = cp_now_us();
  if (cp.gate == CP_CLOSED || !h->shut_chunks) return -1;
  if (cp.gate == CP_HELD && cp.arenas.open) return TORN_US;
  size_t chunk = cp_order_next(&cp.order, h);
  if (chunk < h->chunks) {
    size_t n = bring_batch(chunk);
    if (!cp.order.learning && cp_arenas_admit(&cp.arenas, chunk, n)) all_at_once();
    return 0;
  }
  if (!cp.restored_us) cp.restored_us = now;
  if (now - cp.restored_us < LESSON_US) return (int64_t)(LESSON_US - (now - cp.restored_us));
  open_rest();
  return -1;
}

int64_t cp_restore_step(void) {
  if (!cp_relaxed(&cp.arenas.host.shut_chunks)) return -1;
  for (int i = 0; cp_load(&cp.demanding) && i < 1000; i++) sched_yield(); /* the lock is not fair */
  cp_acquire(&cp.gate_lock);
  int64_t sleep_us = step();
  cp_release(&cp.gate_lock);
  return sleep_us;
}
