/* Room for residue.  On the device it costs two copies there; where the bank has no room it goes over the bus, at every
 * switch.  A job to which that keeps happening asks for more persistent memory, without waiting for the answer.
 *
 * All of it by the helper thread, which alone ends turns. */
#include "cuda/grant.h"

#define LEAST (8 * CP_MIB) /* less is not worth the memory */
#define MISSES 3u          /* ends of turns in a row; doubled with each request, up to */
#define MOST_MISSES 192u

static uint32_t misses, patience = MISSES;
static uint64_t missed; /* bytes of the latest residue that went to the host, once they have been asked for */

void cp_room_note(bool on_device, uint64_t bytes) {
  bool miss = !on_device && bytes >= LEAST;
  misses = miss ? misses + 1 : 0;
  missed = 0;
  if (on_device) patience = MISSES;
}

void cp_room_ask(void) {
  uint64_t bytes = cp_round_up(cp_residue_bytes(), CP_PIECE);
  if (misses < patience || !cp_grow_settle()) return;
  misses = 0;
  patience = patience < MOST_MISSES ? 2 * patience : MOST_MISSES;
  missed = bytes;
  cp_grow_ask(0, cp_segments_extent(0) + bytes);
}

uint64_t cp_room_kept(void) { return missed; }
