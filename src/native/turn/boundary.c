#include "turn/boundary.h"

#include <string.h>

void cp_boundary_init(struct cp_boundary *b) {
  memset(b, 0, sizeof *b);
  for (int i = 0; i < CP_KEYS; i++) b->learned[i] = UINT64_MAX;
  b->trough = UINT64_MAX;
  b->asked_trough = UINT64_MAX;
  b->armed = true;
}

void cp_boundary_yielded(struct cp_boundary *b) {
  b->armed = false;
  b->asked_us = 0;
  b->asked_steps = 0;
  b->asked_trough = UINT64_MAX;
}

bool cp_boundary_step(struct cp_boundary *b, uint32_t key, uint64_t live, uint64_t now) {
  if (key >= CP_KEYS) key = CP_KEYS - 1;
  if (b->cycles) b->learned[b->key] = b->trough;
  b->cycles++;
  if (++b->steps[key] > b->iterations) b->iterations = b->steps[key];
  b->key = key;
  b->trough = live;
  b->cycle_us = b->step_us ? now - b->step_us : 0;
  b->step_us = now;
  b->armed = true;
  if (!b->asked_us) return false;
  uint32_t optimizers = 0;
  for (int i = 0; i < CP_KEYS; i++) optimizers += b->steps[i] != 0;
  return ++b->asked_steps > 2 * optimizers;
}

/* Several optimizers: only the cycles with the shallowest residue qualify. */
static bool worth(const struct cp_boundary *b) {
  uint64_t best = UINT64_MAX;
  for (int i = 0; i < CP_KEYS; i++)
    if (b->learned[i] < best) best = b->learned[i];
  return b->learned[b->key] <= best + best / 4 + CP_SLACK;
}

static bool near(uint64_t live, uint64_t trough) { return live <= trough + trough / 16 + CP_SLACK; }

bool cp_boundary_here(struct cp_boundary *b, uint64_t live, uint64_t now, uint64_t grace_us) {
  if (!b->asked_us) {
    b->asked_us = now;
    b->asked_trough = live;
  }
  uint64_t waited = now - b->asked_us;
  if (b->cycles && b->armed && b->learned[b->key] != UINT64_MAX && worth(b) && near(live, b->learned[b->key])) return true;
  /* No step for long: evaluation, inference, hand-written updates.  The lowest point since the request will do. */
  uint64_t patience = b->cycles ? 4 * grace_us + 2 * b->cycle_us : grace_us;
  return waited > patience && near(live, b->asked_trough);
}
