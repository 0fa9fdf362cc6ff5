/* The order of use is learned, later restores need no traps but the first, the store's memory is given back, idle
 * holders lose their turn and busy ones keep it. */
#include "job.h"

static size_t order[CHUNKS];

static void lesson(void) {
  leave();
  give();
  for (size_t i = 0; i < CHUNKS; i++) {
    use(order[i]);
    if (i == CHUNKS / 2) all_back(); /* chunks that are back stay shut until they are touched */
  }
  CHECK_THAT(cp.order.learning && cp.seat->offloaded == 0);
}

static void learning(void) {
  for (size_t i = 0; i < CHUNKS; i++) order[i] = i;
  for (size_t i = CHUNKS - 1; i; i--) {
    size_t k = next_random() % (i + 1), t = order[i];
    order[i] = order[k];
    order[k] = t;
  }
  lesson();
  lesson();
  leave();
  uint64_t traps = cp.seat->traps;
  give();
  use(order[0]);
  CHECK_THAT(!cp.order.learning && cp.order.knowns == CHUNKS && cp.order.planned == CHUNKS);
  for (size_t i = 0; i < CHUNKS; i++) CHECK_THAT(cp.order.plan[i] == order[i]);
  all_back();
  pause_us(20000); /* the last batch is being opened */
  for (size_t i = 0; i < CHUNKS; i++) use(order[i]);
  CHECK_THAT(cp.seat->traps == traps + 1 && cp.seat->resume_us > 0 && cp.order.jumps == 0);
}

static void lesson_ends(void) {
  cp.order.lessons = cp.order.tries = 0;
  leave();
  give();
  use(0);
  pause_us(1300000);
  uint64_t traps = cp.seat->traps;
  use_all();
  CHECK_THAT(cp.seat->traps == traps && cp.order.learning);
}

static void dropping(void) {
  CHECK_THAT(cp_host_memory(&cp.arenas.host) >= CHUNKS * CP_CHUNK);
  cp_store(&cp.seat->offload, CP_OFFLOAD_DROP);
  cp_ring(cp.seat);
  for (uint64_t end = cp_now_us() + 20000000; cp_load(&cp.seat->offload) == CP_OFFLOAD_DROP;) CHECK_THAT(cp_now_us() < end);
  CHECK_THAT(cp.seat->store_bytes == 0 && cp_host_memory(&cp.arenas.host) < CP_MIB);
  leave();
  give();
  use_all();
}

/* The mover's lock is held as long as the gate is not closed, and only then. */
static void locking(void) {
  char path[32];
  struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};
  snprintf(path, sizeof path, "/proc/self/fd/%d", store);
  int fd = open(path, O_RDWR);
  CHECK_THAT(fcntl(fd, F_OFD_SETLK, &l) == -1 && errno == EAGAIN);
  cp_turn_end(CP_BY_BOUNDARY);
  CHECK_THAT(fcntl(fd, F_OFD_SETLK, &l) == 0);
  close(fd);
}

static void watching(void) {
  cp.seat->grace_us = 200000; /* longer than this thread may have to wait for a processor */
  give();
  use(0);
  cp_store(&cp.seat->watch, 1);
  cp_ring(cp.seat);
  uint64_t before = cp.seat->traps, begin = cp_now_us();
  while (cp_now_us() - begin < 1200000) {
    use(next_random() % CHUNKS);
    CHECK_THAT(cp_load(&cp.seat->turn) == 1); /* busy, without an allocation */
  }
  CHECK_THAT(cp.seat->traps - before < 40);
  begin = cp_now_us();
  while (cp_load(&cp.seat->turn)) {
    CHECK_THAT(cp_now_us() - begin < 20000000);
    pause_us(1000);
  }
  CHECK_THAT(cp.seat->watch == 0 && cp.seat->cause == CP_BY_EARLY);
  printf("an idle holder lost its turn after %lu us\n", (unsigned long)(cp_now_us() - begin));
}

int main(void) {
  begin();
  learning();
  lesson_ends();
  dropping();
  locking();
  watching();
  return 0;
}
