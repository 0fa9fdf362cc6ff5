/* A touch of weights that are not there waits for their group. */
#include "weights/groups_state.h"

#include <string.h>

#define MOST_OPEN 256
#define LOOK_US 1000

static struct cp_groups *opened[MOST_OPEN]; /* read in the trap */
static struct cp_lock opened_lock;

int cp_groups_enlist(struct cp_groups *g) {
  int error = EMFILE;
  cp_acquire(&opened_lock);
  for (int i = 0; i < MOST_OPEN && error; i++) {
    if (opened[i]) continue;
    cp_store(&opened[i], g);
    error = 0;
  }
  cp_release(&opened_lock);
  return error;
}

void cp_groups_delist(const struct cp_groups *g) {
  cp_acquire(&opened_lock);
  for (int i = 0; i < MOST_OPEN; i++)
    if (opened[i] == g) cp_store(&opened[i], NULL);
  cp_release(&opened_lock);
}

/* Lock held.  NULL: they are not those of this key. */
static struct cp_groups *of_key(int i, uint64_t key) {
  struct cp_groups *g = cp_load(&opened[i]);
  return g && !memcmp(g->key, &key, sizeof key) ? g : NULL;
}

bool cp_groups_moved(uint64_t key, int device) {
  bool good = true;
  cp_acquire(&opened_lock);
  for (int i = 0; i < MOST_OPEN; i++) {
    struct cp_groups *g = of_key(i, key);
    if (g && cp_groups_move(g, device)) good = false;
  }
  cp_release(&opened_lock);
  return good;
}

static uint32_t any_dropped;

void cp_groups_dropped(uint64_t key) {
  cp_acquire(&opened_lock);
  for (int i = 0; i < MOST_OPEN; i++) {
    struct cp_groups *g = of_key(i, key);
    if (g && g->carrier->forget) cp_store(&g->dropped, 1);
  }
  cp_release(&opened_lock);
  cp_store(&any_dropped, 1);
}

bool cp_groups_any_dropped(void) { return cp_load(&any_dropped); }

void cp_groups_clear(void) {
  if (!cp_load(&any_dropped)) return;
  cp_store(&any_dropped, 0);
  cp_acquire(&opened_lock);
  for (int i = 0; i < MOST_OPEN; i++) {
    struct cp_groups *g = cp_load(&opened[i]);
    if (g && g->carrier->forget) cp_groups_let_go(g);
  }
  cp_release(&opened_lock);
}

void cp_groups_bar(uint64_t key, bool bar) {
  cp_acquire(&opened_lock);
  for (int i = 0; i < MOST_OPEN; i++) {
    struct cp_groups *g = of_key(i, key);
    if (!g) continue;
    if (bar)
      cp_groups_close_all(g);
    else if (cp_load(&g->barred))
      cp_groups_bring(g);
  }
  cp_release(&opened_lock);
}

void cp_groups_halt(uint64_t key) {
  cp_acquire(&opened_lock);
  for (int i = 0; i < MOST_OPEN; i++) {
    struct cp_groups *g = of_key(i, key);
    if (g) cp_groups_stop(g);
  }
  cp_release(&opened_lock);
}

bool cp_groups_back(uint64_t key) {
  bool back = true;
  cp_acquire(&opened_lock);
  for (int i = 0; i < MOST_OPEN; i++) {
    struct cp_groups *g = of_key(i, key);
    if (!g || !cp_load(&g->due)) continue;
    bool all = !cp_groups_bring(g) && !cp_groups_await(g, g->count);
    if (all) cp_store(&g->due, 0);
    back &= all;
  }
  cp_release(&opened_lock);
  return back;
}

static struct cp_groups *owner_of(const char *address) {
  for (int i = 0; i < MOST_OPEN; i++) {
    struct cp_groups *g = cp_load(&opened[i]);
    if (g && g->carrier->give && address >= g->at + g->bounds[0] && address < g->at + g->bytes) return g;
  }
  return NULL;
}

static uint32_t group_at(const struct cp_groups *g, uint64_t offset) {
  uint32_t low = 0, high = g->count;
  while (high - low > 1) {
    uint32_t middle = low + (high - low) / 2;
    *(g->bounds[middle] <= offset ? &low : &high) = middle;
  }
  return low;
}

/* Another thread may have opened the group since the touch.  If the same touch fails again, it was a write. */
static bool try_again(const struct cp_groups *g, const void *address) {
  static __thread const void *last __attribute__((tls_model("initial-exec")));
  static __thread uint32_t load __attribute__((tls_model("initial-exec")));
  bool again = last != address || load != g->load;
  last = address;
  load = g->load;
  return again;
}

bool cp_groups_trap(const void *address) {
  struct cp_groups *g = owner_of(address);
  if (!g) return false;
  uint32_t k = group_at(g, (uint64_t)((const char *)address - g->at));
  if (cp_load(&g->open[k])) return try_again(g, address);
  uint64_t begin = cp_now_us();
  cp_add(&g->touches, 1);
  for (;;) {
    uint32_t sequence = cp_load(&g->header->sequence);
    bool barred = cp_load(&g->barred);
    if (!barred && cp_groups_has(g, k)) break;
    if (barred && cp_service_lost()) cp_service_take(); /* perhaps nothing else is touched that would ask for the turn */
    cp_groups_sleep(g, sequence, barred ? LOOK_US : -1);
  }
  cp_groups_admit(g, k);
  cp_add(&g->waited_us, cp_now_us() - begin);
  return true;
}
