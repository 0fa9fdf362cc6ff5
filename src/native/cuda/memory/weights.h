/* Weights' memory in a job on a CUDA device: an extent for each model, mapped at an address that stays. */
#ifndef CARPOOL_CUDA_WEIGHTS_H
#define CARPOOL_CUDA_WEIGHTS_H
#include "cuda/gate.h"

/* weights.c.  The first three with the extents' lock. */
void cp_weights_came(const struct cp_packet *p, int fd); /* owns the descriptor */
void cp_weights_cut(uint64_t key);
bool cp_weights_go(const struct cp_packet *p); /* would it unmap any? */
/* Maps what has come for them.  False: that has failed for now, or nothing has come. */
bool cp_weights_map(uint64_t key);
int cp_weights_take(uint64_t key, int *header); /* the backend's `weights`.  ENOMEM: they cannot be mapped */
void cp_weights_forked(void);                   /* in a child: it keeps none */
CP_EXPORT uint64_t cp_weights_address(uint64_t key); /* 0: they are not mapped */
/* weight_groups.c.  Not in flight: work that has not followed its weights comes after all of them */
void cp_groups_gate(const struct cp_thread *t);
#endif
