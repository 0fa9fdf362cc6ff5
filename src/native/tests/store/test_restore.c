/* The order of use is learned, later restores need no traps but the first, the store's memory is given back, idle
 * holders lose their turn and busy ones keep it. */
#include "base/common.h"

static uint64_t lesson_us = 60000000; /* none ends by itself until it is to */
#define LESSON_US lesson_us
#include "tests/job.h"

#include <pthread.h>

#define GRACE_US SHORT_OR_LONG(60000, 200000)

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

/* The helper thread has opened what it has brought: it does both in one step. */
static void step_ends(void) {
  cp_acquire(&cp.gate_lock);
  cp_release(&cp.gate_lock);
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
  step_ends();
  for (size_t i = 0; i < CHUNKS; i++) use(order[i]);
  CHECK_THAT(cp.seat->traps == traps + 1 && cp.seat->resume_us > 0 && cp.order.jumps == 0);
}

static void lesson_ends(void) {
  cp.order.lessons = cp.order.tries = 0;
  cp_store(&lesson_us, 300000);
  leave();
  give();
  use(0);
  for (uint64_t end = cp_now_us() + 20000000; cp_load(&cp.arenas.host.shut_chunks); pause_us(1000)) CHECK_THAT(cp_now_us() < end);
  step_ends();
  uint64_t traps = cp.seat->traps;
  use_all();
  CHECK_THAT(cp.seat->traps == traps && cp.order.learning);
}

static void dropping(void) {
  CHECK_THAT(cp_host_memory(&cp.arenas.host) >= CHUNKS * CP_CHUNK);
  cp_store(&cp.seat->offload, CP_OFFLOAD_DROP);
  cp_notify(cp.seat);
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

static uint32_t lost, enough; /* turns, of them */

/* Gives each turn back that is lost, when it is wanted again. */
static void *arbiter(void *unused) {
  for (; !cp_load(&enough); pause_us(1000)) {
    if (!cp_load(&cp.seat->want) || cp_load(&cp.seat->turn)) continue;
    cp_add(&lost, 1);
    cp_store(&cp.seat->watch, 1);
    give();
    cp_futex_wake(&cp.seat->turn);
    cp_notify(cp.seat);
  }
  return unused;
}

/* Busy, without an allocation.  Where this thread had to wait for a processor for as long as an idle holder may stay, it may
 * lose its turn, and begins again. */
static void stays_busy(void) {
  const uint64_t grace_us = cp.seat->grace_us;
  for (uint64_t begin = cp_now_us(), last = begin, gap = 0, before = cp.seat->traps; cp_now_us() - begin < 6 * GRACE_US;) {
    use(next_random() % CHUNKS);
    uint64_t now = cp_now_us();
    if (now - last > gap) gap = now - last;
    last = now;
    if (cp_load(&lost)) {
      CHECK_THAT(gap >= grace_us);
      cp_store(&lost, 0);
      begin = now, gap = 0, before = cp.seat->traps;
    }
    CHECK_THAT(cp.seat->traps - before < 40);
  }
}

static void watching(void) {
  pthread_t thread;
  cp.seat->grace_us = GRACE_US;
  give();
  use(0);
  cp_store(&cp.seat->watch, 1);
  cp_notify(cp.seat);
  CHECK_THAT(!pthread_create(&thread, NULL, arbiter, NULL));
  stays_busy();
  cp_store(&enough, 1);
  CHECK_THAT(!pthread_join(thread, NULL));
  uint64_t begin = cp_now_us();
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
