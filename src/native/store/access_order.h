/* In which order chunks are used after a restore.  Learned by keeping chunks shut until their first touch (a lesson);
 * later restores bring them back in that order.  Not thread-safe: gate lock held. */
#ifndef CARPOOL_ORDER_H
#define CARPOOL_ORDER_H
#include "store/host_store.h"

struct cp_order {
  uint32_t *known;  /* what has been learned, first used first */
  uint32_t *fresh;  /* the present lesson */
  uint32_t *plan;   /* chunks of the present restore, in the order in which they come back */
  uint32_t *place;  /* of a chunk in the plan, plus 1; 0: it is not there */
  uint8_t *noted;   /* in the list that is being made */
  size_t knowns, freshes, planned;
  size_t cursor;    /* in the plan: what comes next */
  bool learning;
  uint32_t lessons; /* that saw at least half of what was restored */
  uint32_t tries;   /* lessons in all */
  uint32_t jumps;   /* touches in this restore that the plan had not foreseen */
};

int cp_order_init(struct cp_order *o, size_t chunks);
/* A restore of everything that is in the store begins. */
void cp_order_begin(struct cp_order *o, const struct cp_host *h);
/* A lesson: the chunk has been touched for the first time. */
void cp_order_note(struct cp_order *o, size_t chunk);
/* The chunk is needed now; what follows it in the plan comes next.  Foreseen: it was about to come anyway. */
void cp_order_demand(struct cp_order *o, size_t chunk, bool first);
/* What to bring back next; h->chunks: nothing is left. */
size_t cp_order_next(struct cp_order *o, const struct cp_host *h);
#endif
