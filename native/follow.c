/* A seat follows its use.
 *
 * A process that finds the seat of its job taken is *pending*: it asks again when it is about to use its device.  The
 * daemon then asks the process that has the seat to leave it.  That one does if it has never used it, and is pending
 * itself from then on; otherwise it stays, and the other one is a plain process. */
#include "process.h"

#include <string.h>
#include <sys/uio.h>

static struct cp_lock claim_lock;

static void warn(const char *why) {
  static const char prefix[] = "carpool: warning: cannot attach to the daemon: ";
  static const char end[] = "; this process runs without Carpool\n";
  struct iovec v[3] = {{(void *)(uintptr_t)prefix, sizeof prefix - 1},
                       {(void *)(uintptr_t)why, strlen(why)},
                       {(void *)(uintptr_t)end, sizeof end - 1}};
  syscall(SYS_writev, 2, v, 3);
}

bool cp_claim_seat(void) {
  int saved = errno;
  cp_acquire(&claim_lock);
  if (cp_load(&cp.pending)) {
    if (cp_hello(cp.fd, true) < 0) warn(cp_failure);
    cp_store(&cp.pending, 0);
  }
  cp_release(&claim_lock);
  errno = saved;
  return cp_active();
}

/* All locks held: nobody is in the middle of a first use. */
static bool unused(void) {
  const struct cp_seat *s = cp.seat;
  return !cp.allocs && cp.gate == CP_CLOSED && !cp_load(&s->turn) && !s->turns && !cp_load(&s->want) && !s->grow_seq;
}

bool cp_leave_seat(void) {
  bool nobody_grows = cp_try(&cp.grow_lock); /* who does has come to use it */
  cp_acquire(&cp.pool_lock);
  cp_acquire(&cp.gate_lock);
  bool leaves = nobody_grows && unused();
  if (leaves) {
    cp_store(&cp.attached, 0);
    cp_arenas_end(&cp.arenas);
    cp_host_end(&cp.arenas.host);
  }
  cp_store(&cp.seat->leave, leaves ? CP_LEAVE_LEFT : CP_LEAVE_STAYS);
  cp_send(CP_LEFT, !leaves, 0, 0, 0);
  if (leaves) cp_store(&cp.pending, 1);
  cp_release(&cp.gate_lock);
  cp_release(&cp.pool_lock);
  if (nobody_grows) cp_release(&cp.grow_lock);
  return leaves;
}
