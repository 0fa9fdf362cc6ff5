/* Promotion asks for memory only when no answer is due that it could be taken for. */
#pragma GCC diagnostic ignored "-Wunused-function" /* what others need of it */
#include "tests/job.h"

static void look_at(uint64_t iteration) {
  cp.boundary.iterations = iteration;
  cp_promote_consider();
}

int main(void) {
  size_t need;
  no_helper = true;
  attach();
  struct cp_seat *s = cp.seat;
  CHECK_THAT(cp_pool_alloc(&cp.arenas.win[cp.arenas.ephemeral].pool, 64 * CP_MIB, CP_GIB, 0, &need));
  cp_grow_ask(1, CP_MIB); /* nobody has waited for its answer */
  CHECK_THAT(s->grow_seq == 1);
  look_at(10);
  CHECK_THAT(s->grow_seq == 1 && !cp.promote_seq);
  cp_store(&s->e_limit, CP_MIB);
  cp_store(&s->grow_ack, 1);
  look_at(20);
  CHECK_THAT(s->grow_seq == 2 && cp.promote_seq == 2 && s->grow_class == 256 && cp.e_cap == CP_MIB);
  look_at(30);
  CHECK_THAT(s->grow_seq == 2 && cp.promote_seq == 2); /* still due */
  cp_store(&s->grow_status, CP_GROW_GRANTED);
  cp_store(&s->grow_ack, 2);
  look_at(40);
  CHECK_THAT(s->grow_seq == 2 && !cp.promote_seq && cp.promote_granted);
  return 0;
}
