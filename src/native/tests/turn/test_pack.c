/* Jobs that have been refused memory: two threads allocate, fill, check and free blocks whose pages fit on the device, while
 * the free ones between them do not; a third one touches its block all the time.  A stand-in for the daemon grants what the device has, gives the lane to another job as
 * soon as this one does not need it, takes turns away, and moves the job out.  No allocation may fail, no byte may
 * change, and never may there be more pages than were granted. */
#pragma GCC diagnostic ignored "-Wunused-function" /* what others need of it */
#include "tests/job.h"

#ifdef __SANITIZE_ADDRESS__
int main(void) {
  puts("the address sanitizer has an allocator of its own");
  return 77;
}
#else
#include "job/malloc_hooks.c"

#include <pthread.h>

#define DEVICE (24 * CP_MIB)
#define WORKERS 2
#define HELD 48
#define LIVE (DEVICE * 2 / 5) /* of each worker */
#define ROUNDS SHORT_OR_LONG(1000, 4000)

static char *lane_alias;
static int stop, ended;
static unsigned long packs, denials, moves, turns, not_used;
static uint64_t used_before; /* turns that the job had used when it moved out */

struct held {
  unsigned char *p, fill;
  size_t n;
};
static struct worker {
  struct held held[HELD];
  size_t live;
  unsigned seed;
} workers[WORKERS];

static unsigned draw(unsigned *seed) { return (*seed = *seed * 1103515245u + 12345u) >> 8; }

/* ---- the daemon ------------------------------------------------------------------------------------------------------- */

static void others_use_lane(void) { memset(lane_alias, 0x5a, DEVICE); }

/* The job has no turn.  Nobody can hide a page from the kernel's count. */
static void within_limit(void) {
  struct stat status;
  if (moves && cp_load(&cp.seat->turns) == used_before) { /* what others have written is still in its buffer */
    not_used++;
    return;
  }
  CHECK_THAT(!fstat(buffer, &status));
  uint64_t pages = (uint64_t)status.st_blocks * 512, limit = cp_load(&cp.seat->p_limit) + CP_PAGE; /* the probe's page */
  CHECK_THAT(pages <= limit);
  if (!cp.arenas.packed) return;
  CHECK_THAT(pages <= cp_load(&cp.arenas.counted.bytes) && cp_load(&cp.arenas.counted.bytes) <= limit);
  CHECK_THAT(cp.seat->residue == 0);
}

static void answer_grow(const struct cp_packet *p) {
  struct cp_seat *s = cp.seat;
  bool packing_now = p->d & 4;
  uint64_t others = packing_now ? 0 : p->a ? s->p_limit : s->e_limit;
  bool fits = p->b + others <= DEVICE;
  if (fits && packing_now) {
    pause_us(20000); /* other threads touch and allocate meanwhile, or try to */
    cp_store(&s->p_limit, p->b);
    cp_store(&s->e_limit, 0);
    others_use_lane();
    packs++;
  } else if (fits)
    cp_store(p->a ? &s->e_limit : &s->p_limit, p->b);
  denials += !fits;
  cp_store(&s->grow_status, fits ? CP_GROW_GRANTED : CP_GROW_DENIED);
  cp_store(&s->grow_ack, (uint32_t)p->c);
  cp_futex_wake(&s->grow_ack);
}

/* Whoever has the buffer next writes wherever this job had pages, and here and there besides. */
static void others_use_buffer(void) {
  static char garbage[64 * CP_KIB];
  memset(garbage, (int)(moves & 0xff), sizeof garbage);
  for (off_t at = 0, hole; (at = lseek(buffer, at, SEEK_DATA)) >= 0; at = hole) {
    hole = lseek(buffer, at, SEEK_HOLE);
    for (off_t n; at < hole; at += n) {
      n = hole - at < (off_t)sizeof garbage ? hole - at : (off_t)sizeof garbage;
      CHECK_THAT(pwrite(buffer, garbage, (size_t)n, at) == n);
    }
  }
  for (off_t at = 0; at < 2 * (off_t)CP_GIB; at += at % (off_t)CP_GIB < (off_t)DEVICE ? (off_t)CP_MIB : (off_t)CP_GIB - (off_t)DEVICE)
    CHECK_THAT(pwrite(buffer, garbage, CP_PAGE, at) == CP_PAGE);
}

static void turn_for_job(void) {
  cp_add(&turns, 1);
  give();
  cp_futex_wake(&cp.seat->turn);
  cp_notify(cp.seat);
}

/* Threads that wait for it are not woken. */
static void turn_that_is_over_at_once(void) {
  cp_add(&turns, 1);
  give();
  ask_yield(CP_YIELD_NOW);
}

/* Two threads' packets may overtake each other; the seat says whether the turn has ended. */
static void look_at_turn(void) {
  static uint64_t seen;
  if (cp_load(&cp.seat->turn) || cp_load(&cp.seat->passed_seq) == seen) return;
  seen = cp.seat->passed_seq;
  within_limit();
  others_use_lane();
}

static void serve(const struct cp_packet *p, unsigned *seed) {
  struct cp_seat *s = cp.seat;
  look_at_turn();
  switch (p->type) {
  case CP_GROW: answer_grow(p); break;
  case CP_SHRUNK:
    if (p->b < (p->a ? s->e_limit : s->p_limit)) cp_store(p->a ? &s->e_limit : &s->p_limit, p->b);
    break;
  case CP_RELEASED: break;
  case CP_OFFLOADED:
    CHECK_THAT(!p->a);
    cp_store(&s->offload, CP_OFFLOAD_NO);
    others_use_buffer();
    cp_add(&moves, 1);
    used_before = cp_load(&s->turns);
    moves % 3 ? turn_for_job() : turn_that_is_over_at_once();
    break;
  case CP_WANT:
    if (cp_load(&s->turn)) break;
    draw(seed) % 2 ? turn_for_job() : ask_out();
    break;
  default: CHECK_THAT(false);
  }
}

static void *daemon_thread(void *unused) {
  (void)unused;
  unsigned seed = 7;
  while (!cp_load(&ended)) {
    struct cp_packet p;
    struct timeval patience = {.tv_usec = 500 + (int)(draw(&seed) % 4000)};
    CHECK_THAT(!setsockopt(daemon_fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience));
    ssize_t n = recv(daemon_fd, &p, sizeof p, 0);
    if (n == sizeof p)
      serve(&p, &seed);
    else if (cp_load(&cp.seat->turn))
      ask_yield(CP_YIELD_NOW);
  }
  return NULL;
}

/* ---- the job ---------------------------------------------------------------------------------------------------------- */

static void check_and_free(struct worker *w, struct held *h) {
  for (size_t k = 0; h->p && k < h->n; k += 509) CHECK_THAT(h->p[k] == h->fill);
  if (h->p) CHECK_THAT(cp_arena_free(h->p));
  w->live -= h->p ? h->n : 0;
  h->p = NULL;
}

static void make(struct worker *w, struct held *h) {
  unsigned kind = draw(&w->seed) % 8;
  size_t n = 1024 + draw(&w->seed) % (kind ? 200 * CP_KIB : 4 * CP_MIB);
  if (w->live + n > LIVE) return;
  h->n = n;
  h->fill = (unsigned char)draw(&w->seed);
  h->p = cp_arena_alloc(n);
  CHECK_THAT(h->p);
  memset(h->p, h->fill, n);
  w->live += n;
}

static bool moved_enough(void) { return cp_load(&moves) > 3 && cp_load(&turns) > 10; }

static void *worker(void *argument) {
  struct worker *w = argument;
  for (int round = 0; round < ROUNDS || !moved_enough(); round++) {
    struct held *h = &w->held[draw(&w->seed) % HELD];
    if (w == workers && round % 100 == 0) cp_store(&cp.route_persistent, round / 100 % 2 == 0);
    h->p ? check_and_free(w, h) : make(w, h);
  }
  return NULL;
}

/* Touches its block at any moment, and allocates nothing. */
static void *toucher(void *unused) {
  (void)unused;
  uint64_t *p = cp_arena_alloc(CP_MIB), rounds = 0;
  for (size_t i = 0; i < CP_MIB / 8; i += 64) p[i] = i;
  for (; !cp_load(&stop); rounds++)
    for (size_t i = 0; i < CP_MIB / 8; i += 64) p[i] += 7;
  for (size_t i = 0; i < CP_MIB / 8; i += 64) CHECK_THAT(p[i] == i + 7 * rounds);
  return NULL;
}

static void all_there(void) {
  for (size_t i = 0; i < WORKERS * HELD; i++) {
    const struct held *h = &workers[i / HELD].held[i % HELD];
    for (size_t k = 0; h->p && k < h->n; k += 509) CHECK_THAT(h->p[k] == h->fill);
  }
}

/* What the device does not have is refused all the same, and nothing changes. */
static void too_much(void) {
  unsigned long before = denials;
  CHECK_THAT(!cp_arena_alloc(DEVICE));
  CHECK_THAT(denials > before && cp.packed);
  all_there();
}

int main(void) {
  pthread_t judge, touching, thread[WORKERS];
  both_modes();
  attach();
  lane_alias = mmap(NULL, DEVICE, PROT_READ | PROT_WRITE, MAP_SHARED, cp.arenas.lane_fd, 0);
  CHECK_THAT(lane_alias != MAP_FAILED && !pthread_create(&judge, NULL, daemon_thread, NULL));
  CHECK_THAT(!pthread_create(&touching, NULL, toucher, NULL));
  for (unsigned i = 0; i < WORKERS; i++) {
    workers[i].seed = i + 1;
    CHECK_THAT(!pthread_create(&thread[i], NULL, worker, &workers[i]));
  }
  for (unsigned i = 0; i < WORKERS; i++) pthread_join(thread[i], NULL);
  all_there();
  too_much();
  CHECK_THAT(packs == 1 && cp.seat->e_limit == 0);
  CHECK_THAT(!cp_pool_check(&cp.arenas.win[0].pool) && !cp_pool_check(&cp.arenas.win[cp.arenas.ephemeral].pool));
  printf("%lu refusals, %lu moves, %lu turns, %lu of them not used\n", denials, moves, turns, not_used);
  cp_store(&stop, 1);
  pthread_join(touching, NULL);
  cp_store(&ended, 1);
  pthread_join(judge, NULL);
  return 0;
}
#endif
