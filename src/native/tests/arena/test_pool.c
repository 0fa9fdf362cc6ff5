/* The pool under random use, against its own invariants and an independent record of what is where. */
#include "tests/check.h"
#include "arena/pool.c"
uint64_t cp_syscalls;

#define SLOTS 10000
static struct {
  char *p;
  size_t n;
} held[SLOTS];

static size_t random_size(void) {
  switch (next_random() % 4) {
    case 0: return 1 + next_random() % 300;
    case 1: return 1 + next_random() % 5000;
    case 2: return 1 + next_random() % 100000;
    default: return 1 + next_random() % 2000000;
  }
}

static void no_overlap(void) {
  for (int i = 0; i < SLOTS; i += 97)
    for (int j = i + 1; held[i].p && j < SLOTS; j++)
      CHECK_THAT(!held[j].p || held[j].p >= held[i].p + held[i].n || held[i].p >= held[j].p + held[j].n);
}

static void random_use(void) {
  struct cp_pool p;
  char *base = (char *)(8 * CP_GIB); /* never touched */
  CHECK_THAT(!cp_pool_init(&p, base, 16 * CP_GIB));
  for (int round = 0; round < 200000; round++) {
    unsigned i = next_random() % SLOTS;
    if (held[i].p) {
      CHECK_THAT(cp_pool_size(&p, held[i].p) >= held[i].n);
      CHECK_THAT(cp_pool_free(&p, held[i].p) >= held[i].n);
      held[i].p = NULL;
    } else {
      size_t need = 0;
      held[i].n = random_size();
      held[i].p = cp_pool_alloc(&p, held[i].n, 16 * CP_GIB, (uint32_t)round, &need);
      CHECK_THAT(held[i].p && (size_t)held[i].p % 64 == 0);
    }
    if (round % 5000 == 0) CHECK_THAT(cp_pool_check(&p) == 0);
  }
  no_overlap();
  CHECK_THAT(cp_pool_extent(&p) < 2 * p.live); /* fragmentation stays small */
  for (int i = 0; i < SLOTS; i++)
    if (held[i].p) CHECK_THAT(cp_pool_free(&p, held[i].p));
  CHECK_THAT(p.live == 0 && p.top == 0 && p.blocks == 0 && cp_pool_check(&p) == 0);
  cp_pool_destroy(&p);
}

static void limits(void) {
  struct cp_pool p;
  size_t need = 0;
  CHECK_THAT(!cp_pool_init(&p, (char *)CP_GIB, CP_GIB));
  char *a = cp_pool_alloc(&p, 1000, 1024, 0, &need);
  CHECK_THAT(a && !cp_pool_alloc(&p, 1, 1024, 0, &need) && need == 1280);
  CHECK_THAT(!cp_pool_alloc(&p, 2 * CP_GIB, SIZE_MAX, 0, &need) && need >= 2 * CP_GIB);
  CHECK_THAT(cp_pool_free(&p, a + 256) == 0 && cp_pool_free(&p, a) == 1024 && cp_pool_free(&p, a) == 0);
  CHECK_THAT(cp_pool_alloc(&p, 1024, 1024, 0, &need) == a);
  cp_pool_destroy(&p);
}

/* A program whose blocks come and go in the same order every iteration must not creep upwards. */
static void repeats_do_not_creep(void) {
  struct cp_pool p;
  size_t need = 0, high = 0;
  char *b[64];
  CHECK_THAT(!cp_pool_init(&p, (char *)CP_GIB, CP_GIB));
  for (int round = 0; round < 50; round++) {
    for (int i = 0; i < 64; i++) b[i] = cp_pool_alloc(&p, 1000 + 7919u * (unsigned)(i % 13), CP_GIB, 0, &need);
    for (int i = 0; i < 64; i++) cp_pool_free(&p, b[(i * 37) % 64]);
    if (round == 0) high = cp_pool_high(&p);
  }
  CHECK_THAT(cp_pool_high(&p) == high);
  cp_pool_destroy(&p);
}

int main(void) {
  random_use();
  limits();
  repeats_do_not_creep();
  return 0;
}
