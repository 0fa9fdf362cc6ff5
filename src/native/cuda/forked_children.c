/* Forked children that come to use a CUDA device.
 *
 * The driver refuses children forked after it had been initialised; those pass through.  Others may initialise
 * it for themselves (forks of a process that has only imported PyTorch, and what a forkserver starts).  Such a child is as
 * good as a new process: once it has initialised the driver it is pending, over a channel of its own, and asks for a seat
 * with its first use.  A child that leaves the driver alone costs nothing and never asks.
 *
 * All of this is in C, because the first use may be in any thread, with any of the program's locks held. */
#include "base/libc.h"
#include "cuda/memory/grant.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static uint32_t watching; /* a process of a job on a CUDA device: its forks may come to use it */
static uint32_t may_join; /* a fork of such a process, and the driver was not in use */

void cp_forks_watch(void) { cp_store(&watching, 1); }

/* For servers that fork and use nothing themselves: they have no seat. */
CP_EXPORT void cp_watch_forks(void) {
  const char *device = getenv("CARPOOL_CUDA_DEVICE");
  if (device && *device) cp_forks_watch();
}

/* As in a process that has just been started: what the parent had was its own.  It had no device memory. */
static void start_anew(void) {
  cp_handoff_leave_channel();
  if (cp.seat_table) munmap(cp.seat_table, CP_BOARD_HEADER + CP_SEATS * sizeof(struct cp_seat));
  memset(&cp, 0, sizeof cp);
  cp.fd = -1;
  cp.backend = &cp_cuda_backend;
  cp_grow_forget();
  cp_cuda_anew();
}

void cp_cuda_in_child(void) {
  if (!cp_load(&watching)) return;
  bool used = cp_load(&cp_driver_used);
  cp_store(&may_join, !used);
  if (used)
    cp_store(&watching, 0); /* neither its own forks: the driver refuses them, too */
  else
    start_anew();
}

static void forked_begins(void) {
  if (!cp_load(&may_join) || cp_disabled()) return;
  cp_handoff_begin(&may_join, cp_cuda_pending);
}

static void native_begins(void) {
  static uint32_t may = 1;
  const char *device = getenv("CARPOOL_CUDA_DEVICE");
  if (cp_load(&may) && device && *device && cp_attaches_itself()) cp_handoff_begin(&may, cp_cuda_pending);
}

void cp_driver_begins(void) {
  forked_begins();
  native_begins();
}
