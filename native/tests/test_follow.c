/* A seat follows its use: the helper leaves a seat that was never used, a first use in between keeps it, and who has left
 * attaches again with its next tensor. */
#pragma GCC diagnostic ignored "-Wunused-function" /* what others need of it */
#include "job.h"

#ifndef __SANITIZE_ADDRESS__
#include "../memory.c"
#else
void *cp_arena_alloc(size_t bytes);
#endif

#include <pthread.h>

#define ROUNDS 60
static int hellos;
static int (*volatile allocate)(void **, size_t, size_t) = posix_memalign; /* the compiler believes to know what it does */

static void set_up_again(void) {
  close(cp.fd);
  attach();
  cp.text_count = 1;
  cp.text[0].lo = 0;
  cp.text[0].hi = UINTPTR_MAX;
}

/* The daemon gives the seat back to whoever asks. */
static int seat_is_free(int fd, bool uses) {
  (void)fd;
  CHECK_THAT(uses);
  hellos++;
  set_up_again();
  cp.seat->e_limit = cp.seat->p_limit = cp.p_cap = cp.e_cap = CP_GIB;
  return 0;
}

static int seat_is_taken(int fd, bool uses) {
  (void)fd, (void)uses;
  hellos++;
  return CP_PLAIN;
}

static uint32_t ask_to_leave(void) {
  struct cp_seat *s = cp.seat;
  cp_store(&s->leave, CP_LEAVE_ASKED);
  cp_ring(s);
  struct cp_packet p;
  do CHECK_THAT(recv(daemon_fd, &p, sizeof p, 0) == sizeof p);
  while (p.type != CP_LEFT);
  CHECK_THAT(s->leave == (p.a ? CP_LEAVE_STAYS : CP_LEAVE_LEFT));
  return s->leave;
}

static void *tensor(void) {
  void *p = NULL;
  CHECK_THAT(!allocate(&p, 64, 1 << 16) && p);
  memset(p, 1, 1 << 16);
  return p;
}

static void leaves_and_comes_back(void) {
  set_up_again();
  CHECK_THAT(ask_to_leave() == CP_LEAVE_LEFT && !cp_load(&cp.attached));
  for (uint64_t end = cp_now_us() + 20000000; !cp_load(&cp.pending);) { /* it says so first */
    CHECK_THAT(cp_now_us() < end);
    pause_us(200);
  }
  answer_hello = seat_is_taken;
  void *p = tensor();
  CHECK_THAT(!cp_arenas_hold(&cp.arenas, p) && hellos == 1 && !cp_load(&cp.pending));
  free(p);
  free(tensor());
  CHECK_THAT(hellos == 1); /* asked once */
  cp.pending = 1;
  answer_hello = seat_is_free;
  cp.board = NULL;
  p = NULL;
  CHECK_THAT(!allocate(&p, 64, 1 << 16) && cp_arenas_hold(&cp.arenas, p) && hellos == 2);
  free(p);
  CHECK_THAT(ask_to_leave() == CP_LEAVE_STAYS && cp_load(&cp.attached));
}

static void *first_use(void *unused) {
  (void)unused;
  void *p = NULL;
  CHECK_THAT(!allocate(&p, 64, 1 << 16) && p);
  free(p);
  return NULL;
}

/* Either the seat stays and has the memory, or it goes and the tensor is ordinary memory. */
static void race(void) {
  answer_hello = seat_is_taken;
  int left = 0;
  for (int i = 0; i < ROUNDS; i++) {
    cp_store(&cp.attached, 0);
    cp.allocs = cp.frees = cp.pending = 0;
    set_up_again();
    cp.seat->e_limit = cp.seat->p_limit = cp.p_cap = cp.e_cap = CP_GIB;
    cp.route_persistent = i & 1;
    pthread_t thread;
    CHECK_THAT(!pthread_create(&thread, NULL, first_use, NULL));
    pause_us(next_random() % 200);
    uint32_t answer = ask_to_leave();
    CHECK_THAT(!pthread_join(thread, NULL));
    CHECK_THAT((answer == CP_LEAVE_LEFT) == (cp.allocs == 0));
    left += answer == CP_LEAVE_LEFT;
  }
  printf("%d of %d left\n", left, ROUNDS);
}

#ifdef __SANITIZE_ADDRESS__
int main(void) {
  (void)leaves_and_comes_back, (void)race;
  puts("skipped: the sanitizer has the allocator to itself");
  return 77;
}
#else
int main(void) {
  leaves_and_comes_back();
  race();
  return 0;
}
#endif
