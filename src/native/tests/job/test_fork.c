/* The helper thread looks whether a child waits for its parent's snapshot while other threads begin and end rounds. */
#pragma GCC diagnostic ignored "-Wunused-function" /* what others need of it */
#pragma GCC diagnostic ignored "-Wshadow" /* the library is not made to be one file */
#define WITH_FORK
#include "tests/job.h"

#define ROUNDS SHORT_OR_LONG(5000, 20000)

bool cp_groups_trap(const void *address) { return (void)address, false; }
void cp_signals_forked(void) {}

static void end_pending_round(void) {
  cp_acquire(&cp.gate_lock);
  if (cp_fork_pending()) end_round(GONE); /* unless the helper thread has settled it */
  cp_release(&cp.gate_lock);
}

static void have_a_round(void) {
  cp_acquire(&cp.pool_lock);
  cp_acquire(&cp.gate_lock);
  CHECK_THAT(begin_round());
  cp_release(&cp.gate_lock);
  cp_release(&cp.pool_lock);
  cp_notify(cp.seat);
  end_pending_round();
}

int main(void) {
  attach();
  cp.e_cap = CP_MIB;
  cp.p_cap = cp.seat->p_limit = cp.seat->e_limit = CP_GIB;
  block = cp_pool_alloc(&cp.arenas.win[0].pool, CP_CHUNK, CP_GIB, 0, &(size_t){0});
  give();
  block[0] = 7;
  for (int i = 0; i < ROUNDS; i++) have_a_round();
  CHECK_THAT(block[0] == 7);
  return 0;
}
