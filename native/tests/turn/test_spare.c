/* A job that has been refused memory of one class gives back what it was granted of the other one to spare, and asks again:
 * what it is granted then, and what is measured of it, is the same as where there was never anything to spare.  A stand-in for
 * the daemon grants with some to spare, as long as there is plenty. */
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

#define DEVICE (64 * CP_MIB)
#define KEPT (20 * CP_MIB)
static int ended;
static unsigned denials, packs, returns;

static void answer_grow(const struct cp_packet *p) {
  struct cp_seat *s = cp.seat;
  uint64_t others = p->a ? s->p_limit : s->e_limit, spare = p->b + others < DEVICE / 2 ? 4 * CP_MIB : 0;
  bool fits = !(p->d & 4) && p->b + others <= DEVICE;
  packs += (p->d & 4) != 0;
  denials += !fits;
  if (fits) cp_store(p->a ? &s->e_limit : &s->p_limit, p->b + spare);
  cp_store(&s->grow_status, fits ? CP_GROW_GRANTED : CP_GROW_DENIED);
  cp_store(&s->grow_ack, (uint32_t)p->c);
  cp_futex_wake(&s->grow_ack);
}

static void *daemon_thread(void *unused) {
  (void)unused;
  while (!cp_load(&ended)) {
    struct cp_packet p;
    struct timeval patience = {.tv_usec = 5000};
    CHECK_THAT(!setsockopt(daemon_fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience));
    if (recv(daemon_fd, &p, sizeof p, 0) != sizeof p) continue;
    if (p.type == CP_GROW) answer_grow(&p);
    if (p.type != CP_SHRUNK) continue;
    uint64_t *limit = p.a ? &cp.seat->e_limit : &cp.seat->p_limit;
    CHECK_THAT(p.b <= cp_load(limit) && p.b >= (p.a ? cp.seat->e_peak : cp.seat->p_used));
    cp_store(limit, p.b);
    returns++;
  }
  return NULL;
}

/* `other` is what fits exactly beside the first block, whichever class that is of. */
static void beside(bool persistent, size_t other) {
  cp_store(&cp.route_persistent, persistent);
  char *first = cp_arena_alloc(KEPT);
  memset(first, 7, KEPT);
  cp_store(&cp.route_persistent, !persistent);
  char *second = cp_arena_alloc(other);
  CHECK_THAT(first && second);
  memset(second, 9, other);
  for (size_t i = 0; i < KEPT; i += 4093) CHECK_THAT(first[i] == 7);
  CHECK_THAT(cp_arena_free(second) && cp_arena_free(first));
}

int main(void) {
  pthread_t judge;
  attach();
  give();
  CHECK_THAT(!pthread_create(&judge, NULL, daemon_thread, NULL));
  beside(true, DEVICE - KEPT - CP_PAGE);
  CHECK_THAT(denials == 1 && returns == 1 && packs == 0 && !cp.packed);
  CHECK_THAT(cp.seat->p_peak < KEPT + 2 * CP_PAGE && cp.seat->e_peak >= DEVICE - KEPT - 2 * CP_PAGE);
  CHECK_THAT(!cp_arena_alloc(DEVICE) && packs == 1 && !cp.packed); /* what the device does not have is refused all the same */
  cp_store(&ended, 1);
  pthread_join(judge, NULL);
  return 0;
}
#endif
