#include "store/access_order.h"

#include <string.h>

#define LESSONS 2
#define MOST_TRIES 8
#define AHEAD 16         /* chunks: a touch that near to what comes next was foreseen */
#define MOST_PLANNED 8192 /* chunks that may be opened one by one: each may need two mappings */

int cp_order_init(struct cp_order *o, size_t chunks) {
  memset(o, 0, sizeof *o);
  uint32_t **lists[4] = {&o->known, &o->fresh, &o->plan, &o->place};
  for (int i = 0; i < 4; i++)
    if (!(*lists[i] = cp_zeroed(chunks * sizeof(uint32_t)))) return -1;
  o->noted = cp_zeroed(chunks);
  return o->noted ? 0 : -1;
}

void cp_order_note(struct cp_order *o, size_t chunk) {
  if (o->noted[chunk]) return;
  o->noted[chunk] = 1;
  o->fresh[o->freshes++] = (uint32_t)chunk;
}

/* What the lesson saw comes first, in its order; then what is known from before. */
static void end_lesson(struct cp_order *o) {
  if (o->learning) {
    o->tries++;
    o->lessons += o->freshes * 2 >= o->planned;
  }
  for (size_t i = 0; i < o->knowns; i++) cp_order_note(o, o->known[i]);
  uint32_t *list = o->known;
  o->known = o->fresh;
  o->knowns = o->freshes;
  o->fresh = list;
  o->freshes = 0;
  for (size_t i = 0; i < o->knowns; i++) o->noted[o->known[i]] = 0;
}

static void plan(struct cp_order *o, size_t chunk) {
  o->plan[o->planned] = (uint32_t)chunk;
  o->place[chunk] = (uint32_t)++o->planned;
}

void cp_order_begin(struct cp_order *o, const struct cp_host *h) {
  bool surprised = o->jumps > 4 + o->planned / 8;
  end_lesson(o);
  for (size_t i = 0; i < o->planned; i++) o->place[o->plan[i]] = 0;
  o->planned = o->cursor = o->jumps = 0;
  for (size_t i = 0; i < o->knowns; i++)
    if (cp_host_has(h, o->known[i])) plan(o, o->known[i]);
  for (size_t k = cp_host_next(h, 0); k < h->chunks; k = cp_host_next(h, k + 1))
    if (!o->place[k]) plan(o, k);
  o->learning = ((o->lessons < LESSONS && o->tries < MOST_TRIES) || surprised) && o->planned <= MOST_PLANNED;
}

void cp_order_demand(struct cp_order *o, size_t chunk, bool first) {
  size_t place = o->place[chunk];
  if (!place) return;
  if (!first && (place - 1 < o->cursor || place - 1 > o->cursor + AHEAD)) o->jumps++;
  o->cursor = place;
}

size_t cp_order_next(struct cp_order *o, const struct cp_host *h) {
  for (size_t i = 0; i < o->planned; i++, o->cursor++) {
    if (o->cursor >= o->planned) o->cursor = 0; /* the order of use is a circle: iteration follows iteration */
    if (cp_host_has(h, o->plan[o->cursor])) return o->plan[o->cursor];
  }
  return cp_host_next(h, 0);
}
