/* Iteration boundaries: where a turn may change hands at the least cost.
 *
 * Watched at allocations.  Between two optimizer steps the live ephemeral bytes pass through a trough; its depth is
 * learned per optimizer from the iteration before, and the turn is given up at the first allocation that would leave
 * the trough.  Loops without optimizer steps give way at the lowest point seen since they were asked. */
#ifndef CARPOOL_BOUNDARY_H
#define CARPOOL_BOUNDARY_H
#include "base/common.h"

#define CP_KEYS 64 /* optimizers told apart; further ones share the last key */
#define CP_EXPLICIT_KEY (CP_KEYS - 1)
#define CP_SLACK ((uint64_t)64 << 10)

struct cp_boundary {
  uint64_t learned[CP_KEYS]; /* trough of the latest cycle that this optimizer's step began; UINT64_MAX: not yet */
  uint64_t steps[CP_KEYS];
  uint64_t iterations;  /* most steps of any one optimizer */
  uint64_t cycles;      /* steps of all */
  uint32_t key;         /* whose step began the present cycle */
  uint64_t trough;      /* least live bytes in the present cycle */
  uint64_t step_us, cycle_us;
  bool armed;           /* a step has ended since the last turn was given up */
  bool explicit_;       /* the script marks its iterations itself */
  uint64_t asked_us;    /* first allocation that saw the request; 0: not asked */
  uint64_t asked_trough;
  uint32_t asked_steps;
};

void cp_boundary_init(struct cp_boundary *b);
/* live: ephemeral bytes alive now. */
static inline void cp_boundary_note(struct cp_boundary *b, uint64_t live) {
  if (live < b->trough) b->trough = live;
  if (live < b->asked_trough) b->asked_trough = live;
}
/* A step of optimizer key has ended.  True: give way at once (asked for more than two whole iterations ago). */
bool cp_boundary_step(struct cp_boundary *b, uint32_t key, uint64_t live, uint64_t now);
/* Asked to give way, about to allocate: is this the place? */
bool cp_boundary_here(struct cp_boundary *b, uint64_t live, uint64_t now, uint64_t grace_us);
/* The turn was given up. */
void cp_boundary_yielded(struct cp_boundary *b);
#endif
