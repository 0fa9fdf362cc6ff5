/* Weights' memory on a CUDA device, one extent for each model.
 *
 * Two descriptors come for a model: a file, of which the header alone is used (weights/groups.h), and the memory, which comes anew
 * each time that it was taken away; a daemon that has been started again sends what is there once more.  It is mapped when
 * the process has been told that it may use it, always at the same address, so a model is bound to it once.  It is
 * writable: groups are brought by the jobs themselves. */
#include "cuda/memory/weights.h"

#include "cuda/memory/grant.h"

#define MOST_MODELS 256
enum { HEADER = 0, MEMORY = 1 }; /* packets' c */

struct weights {
  uint64_t key, size, number; /* number: of the extent, no other has it */
  CUdeviceptr at; /* reserved */
  uint64_t reserved;
  int header, memory; /* come, and not asked for or mapped; -1: none */
  bool mapped;
};

static struct cp_lock lock; /* after the extents' */
static struct weights table[MOST_MODELS];
static uint32_t count;

/* Lock held.  NULL: unknown. */
static struct weights *find(uint64_t key) {
  for (uint32_t i = 0; i < count; i++)
    if (table[i].key == key) return &table[i];
  return NULL;
}

/* Of a model that has nothing on the device; should it come back, it will be somewhere else. */
static struct weights *spare(void) {
  if (count < MOST_MODELS) return &table[count++];
  for (uint32_t i = 0; i < count; i++) {
    struct weights *w = &table[i];
    if (w->mapped || w->memory >= 0 || w->header >= 0) continue;
    if (w->reserved) cp_real.cuMemAddressFree(w->at, w->reserved);
    return w;
  }
  return NULL;
}

static struct weights *find_or_add(uint64_t key) {
  struct weights *w = find(key);
  if (w) return w;
  if ((w = spare())) *w = (struct weights){.key = key, .header = -1, .memory = -1};
  return w;
}

static void unmap(struct weights *w) {
  if (!w->mapped) return;
  CUstreamCaptureMode mode = cp_relax();
  cp_real.cuMemUnmap(w->at, w->size);
  cp_unrelax(mode);
  w->mapped = false;
}

void cp_weights_came(const struct cp_packet *p, int fd) {
  cp_acquire(&lock);
  struct weights *w = find_or_add(p->a);
  if (!w) cp_give_up("too many models are on the device");
  bool memory = p->c == MEMORY, known = memory && w->number == p->d && (w->mapped || w->memory >= 0);
  int *place = memory ? &w->memory : &w->header;
  if (!known) {
    cp_close_fd(place);
    *place = fd;
    fd = -1;
  }
  if (memory && !known) {
    unmap(w);
    w->size = p->b;
    w->number = p->d;
  }
  cp_close_fd(&fd);
  cp_release(&lock);
}

bool cp_weights_go(const struct cp_packet *p) {
  cp_acquire(&lock);
  const struct weights *w = find(p->a);
  bool cut = p->type == CP_CUT && p->b == CP_CUT_WEIGHTS;
  bool moved = w && p->type == CP_WEIGHTS && p->c == MEMORY && p->d != w->number;
  bool go = w && w->mapped && (cut || moved);
  cp_release(&lock);
  return go;
}

void cp_weights_cut(uint64_t key) {
  cp_acquire(&lock);
  struct weights *w = find(key);
  if (w) {
    unmap(w);
    cp_close_fd(&w->memory);
  }
  cp_release(&lock);
}

static bool reserve(struct weights *w) {
  if (w->reserved >= w->size) return true;
  CUdeviceptr at;
  if (cp_real.cuMemAddressReserve(&at, w->size, CP_PIECE, 0, 0) != CUDA_SUCCESS) return false;
  if (w->reserved) cp_real.cuMemAddressFree(w->at, w->reserved);
  w->at = at;
  w->reserved = w->size;
  return true;
}

/* Lock held. */
static bool map(struct weights *w) {
  if (w->mapped) return true;
  if (w->memory < 0) return false;
  CUstreamCaptureMode mode = cp_relax();
  w->mapped = reserve(w) && cp_extent_map(w->at, w->size, w->memory, true);
  cp_unrelax(mode);
  if (w->mapped) cp_close_fd(&w->memory);
  return w->mapped;
}

bool cp_weights_map(uint64_t key) {
  cp_acquire(&lock);
  struct weights *w = find(key);
  bool mapped = w && map(w);
  cp_release(&lock);
  return mapped;
}

CP_EXPORT uint64_t cp_weights_address(uint64_t key) {
  cp_acquire(&lock);
  const struct weights *w = find(key);
  uint64_t at = w && w->mapped ? w->at : 0;
  cp_release(&lock);
  return at;
}

static uint64_t wanted; /* one thread places weights at a time */
static bool mapped_now(void) { return cp_weights_map(wanted); }

int cp_weights_take(uint64_t key, int *header) {
  cp_extents_take(false);
  wanted = key;
  if (!cp_until(mapped_now, cp_now_us(), CP_FAILING_US)) return ENOMEM;
  cp_acquire(&lock);
  struct weights *w = find(key);
  *header = w->header;
  w->header = -1;
  cp_release(&lock);
  return 0;
}

void cp_weights_forked(void) {
  cp_reset_lock(&lock);
  for (uint32_t i = 0; i < count; i++) {
    cp_close_fd(&table[i].header);
    cp_close_fd(&table[i].memory);
  }
  count = 0;
}
