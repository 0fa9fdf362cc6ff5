/* A holder that is paused keeps its turn, its lane and its content, and computes nothing until the pause is over. */
#include "tests/job.h"

#include <pthread.h>

#define CELLS 1000
static uint64_t *cells; /* ephemeral */
static uint64_t progress;

static void pause_holder(void) {
  ask_yield(CP_YIELD_PAUSE);
  struct cp_packet p;
  CHECK_THAT(recv(daemon_fd, &p, sizeof p, 0) == sizeof p && p.type == CP_PAUSED && p.a == cp.seat->pause_seq);
  CHECK_THAT(cp.seat->paused == cp.seat->pause_seq && cp.seat->turn == 1);
}

static void until(bool (*true_)(void)) {
  for (uint64_t end = cp_now_us() + 20000000; !true_(); pause_us(200)) CHECK_THAT(cp_now_us() < end);
}

static bool trapped(void) { return cp_load(&cp.seat->traps) > 0; }

/* Touches its memory once, and says so. */
static void *toucher(void *unused) {
  (void)unused;
  for (size_t i = 0; i < CELLS; i++) cells[i]++;
  cp_add(&progress, 1);
  return NULL;
}

static pthread_t touch(void) {
  pthread_t thread;
  cp_store(&cp.seat->traps, 0);
  CHECK_THAT(!pthread_create(&thread, NULL, toucher, NULL));
  until(trapped);
  return thread;
}

static void cells_are(uint64_t added) {
  for (size_t i = 0; i < CELLS; i++) CHECK_THAT(cells[i] == 7 * i + added);
}

static void goes_on_where_it_was(void) {
  uint64_t ends = cp.seat->passed_seq, saved = cp.seat->residue_total;
  pause_holder();
  pthread_t thread = touch();
  pause_us(2000); /* long enough to see it go wrong, if it does */
  CHECK_THAT(cp_load(&progress) == 0 && cp.gate == CP_HELD);
  ask_yield(CP_YIELD_NO);
  CHECK_THAT(!pthread_join(thread, NULL) && progress == 1 && cp.seat->paused == 0);
  cells_are(1);
  CHECK_THAT(cp.seat->passed_seq == ends && cp.seat->residue_total == saved && cp.seat->turn == 1);
}

/* The next pause has a number of its own, also where the last one was over before anybody noticed. */
static void again_and_again(void) {
  for (int i = 0; i < 50; i++) {
    pause_holder();
    ask_yield(CP_YIELD_NO);
    if (i % 2) cells_are(1);
  }
  cells_are(1);
}

static void spoil_lane(void) {
  int fd = cp.arenas.lane_fd;
  static char garbage[CELLS * 16];
  memset(garbage, 0x5a, sizeof garbage);
  CHECK_THAT(pwrite(fd, garbage, sizeof garbage, 0) == (ssize_t)sizeof garbage);
}

static void made_to_let_go(void) {
  struct cp_packet p;
  uint64_t ends = cp.seat->passed_seq;
  pause_holder();
  pthread_t thread = touch();
  ask_yield(CP_YIELD_NOW);
  bool released = false, wanted = false; /* two threads send them */
  while (!released || !wanted) {
    CHECK_THAT(recv(daemon_fd, &p, sizeof p, 0) == sizeof p);
    released |= p.type == CP_RELEASED && p.a == CP_BY_FORCE;
    wanted |= p.type == CP_WANT;
  }
  CHECK_THAT(cp.seat->passed_seq == ends + 1 && cp.seat->paused == 0 && cp.seat->residue >= CELLS * 8);
  spoil_lane();
  give();
  cp_futex_wake(&cp.seat->turn);
  CHECK_THAT(!pthread_join(thread, NULL) && progress == 2);
  cells_are(2);
}

static void before_anybody_has_touched(void) {
  cp_turn_end(CP_BY_BOUNDARY);
  wait_for(CP_RELEASED);
  give();
  pause_holder();
  CHECK_THAT(cp.gate == CP_CLOSED);
  pthread_t thread = touch();
  ask_yield(CP_YIELD_NO);
  CHECK_THAT(!pthread_join(thread, NULL) && progress == 3);
  cells_are(3);
}

static void without_a_turn_nothing_happens(void) {
  struct cp_packet p;
  cp_turn_end(CP_BY_BOUNDARY);
  wait_for(CP_RELEASED);
  ask_yield(CP_YIELD_PAUSE);
  pause_us(2000);
  CHECK_THAT(recv(daemon_fd, &p, sizeof p, MSG_DONTWAIT) < 0 && cp.seat->paused == 0);
  ask_yield(CP_YIELD_NO);
  give();
  cells_are(3);
}

int main(void) {
  size_t need;
  begin();
  cp.e_cap = CP_GIB;
  cells = cp_pool_alloc(&cp.arenas.win[1].pool, CELLS * 8, CP_GIB, 0, &need);
  for (size_t i = 0; i < CELLS; i++) cells[i] = 7 * i;
  goes_on_where_it_was();
  again_and_again();
  made_to_let_go();
  before_anybody_has_touched();
  without_a_turn_nothing_happens();
  use_all();
  return 0;
}
