/* A job on the host device has been refused memory.  Before it hears of that, all that it has been granted and that holds no
 * live block is put to use: its arenas are packed (arena/packed.c), and persistent memory alone is granted from then on.
 *
 * The request for that stands for all of its limits at once, so that no other job can come between.  When it is granted the
 * lane may be another job's at once; therefore ephemeral content is in the residue store by then, as between two turns. */
#include "base/process.h"

#include <sched.h>
#include <stdio.h>

#define MOST_LINES 3 /* a program that tries sizes until one fits does not fill its log */

/* Gate lock held, gate closed.  What is granted next may be less than the device buffer has pages. */
static void drop_dead_pages(void) {
  cp_host_lock(&cp.arenas.host);
  if (!cp_is_out()) cp_arenas_drop_dead(&cp.arenas);
  cp_host_unlock(&cp.arenas.host);
}

/* The turn stays, if it is held. */
static bool close_gate(void) {
  cp_acquire(&cp.pool_lock);
  cp_acquire(&cp.gate_lock);
  cp_store(&cp.packing, 1);
  if (cp.gate != CP_CLOSED && cp_fork_pending()) cp_fork_settle();
  bool closed = cp.backend->close(CP_BY_FORCE);
  if (closed) drop_dead_pages();
  cp_release(&cp.gate_lock);
  cp_release(&cp.pool_lock);
  return closed;
}

/* Bytes that packed arenas need for what is alive, and a block of so many more bytes. */
static size_t packed_bytes(size_t more) {
  cp_acquire(&cp.pool_lock);
  size_t covered = cp_arenas_covered(&cp.arenas);
  cp_release(&cp.pool_lock);
  return covered + cp_round_up(more, CP_PAGE) + CP_PAGE; /* a block need not begin with its page */
}

static bool begin_counting(void) {
  struct cp_seat *s = cp.seat;
  cp_acquire(&cp.pool_lock);
  bool counts = !cp_arenas_count_pages(&cp.arenas);
  if (counts) {
    cp.packed = true;
    cp.promote_granted = false;
    size_t used = cp_arenas_persistent(&cp.arenas);
    cp_put(&s->p_used, used);
    if (used > s->p_peak) cp_put(&s->p_peak, used);
    cp_put(&s->e_peak, 0); /* its next run is to be granted what this one needs from now on */
  }
  cp_release(&cp.pool_lock);
  return counts;
}

/* Grow lock held. */
static bool pack(size_t more) {
  bool granted = close_gate() && cp_grow_packed(packed_bytes(more));
  if (granted && !begin_counting()) cp_give_up("there is no memory to count pages");
  if (granted) cp_send(CP_SHRUNK, 1, 0, 0, 0); /* a daemon that has just come may have found ephemeral memory in the seat */
  cp_store(&cp.packing, 0);
  cp_futex_wake(&cp.packing);
  return granted;
}

bool cp_pack(size_t more) {
  if (cp.backend != &cp_host_backend) return false;
  cp_acquire(&cp.grow_lock);
  bool packed = cp_active() && (cp.packed || pack(more));
  cp_release(&cp.grow_lock);
  return packed;
}

void cp_pack_settle(void) {
  if (cp_load(&cp.gate) == CP_CLOSED)
    cp_trap(cp.arenas.lo);
  else
    sched_yield(); /* the helper thread brings the rest, or a probe is under way */
}

static double mib(uint64_t bytes) { return (double)bytes / (double)CP_MIB; }

/* What the framework's own message cannot know. */
void cp_refused(size_t bytes) {
  static uint32_t lines;
  if (!cp_active() || cp_add(&lines, 1) > MOST_LINES) return;
  const struct cp_seat *s = cp.seat;
  char text[512];
  int n = snprintf(text, sizeof text,
                   "carpool: device memory was refused: asked for %.1f MiB; granted %.1f MiB, of which %.1f MiB are alive; the "
                   "device has %.1f MiB, of which other jobs hold %.1f MiB. Use smaller batches, or a larger device (carpool "
                   "devices lists them)\n",
                   mib(bytes), mib(cp_load(&s->p_limit) + cp_load(&s->e_limit)), mib(cp_load(&s->p_live) + cp_load(&s->e_live)),
                   mib(cp.capacity), mib(cp_load(&s->others)));
  if (n > 0 && syscall(SYS_write, 2, text, (size_t)n) < 0) return; /* the job may have closed its standard error */
}
