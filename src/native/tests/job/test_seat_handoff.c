/* A seat follows its use: the helper leaves a seat that was never used, a first use in between keeps it, and who has left
 * attaches again with its next tensor. */
#pragma GCC diagnostic ignored "-Wunused-function" /* what others need of it */
#include "tests/job.h"

#ifndef __SANITIZE_ADDRESS__
#include "job/malloc_hooks.c"
#else
void *cp_arena_alloc(size_t bytes);
#endif

#include <pthread.h>

#define ROUNDS 60
static int hellos;
static bool stays; /* the helper thread that was asked last */
static int (*volatile allocate)(void **, size_t, size_t) = posix_memalign; /* the compiler believes to know what it does */

static void set_up_again(void) {
  close(cp.fd);
  attach();
  note_channel(cp.fd);
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

static uint32_t answer_to_leave(void) {
  struct cp_packet p;
  do CHECK_THAT(recv(daemon_fd, &p, sizeof p, 0) == sizeof p);
  while (p.type != CP_LEFT);
  CHECK_THAT(cp.seat->leave == (p.a ? CP_LEAVE_STAYS : CP_LEAVE_LEFT));
  stays = p.a;
  if (!stays) { /* the answer is sent before it is pending */
    cp_acquire(&claim_lock);
    cp_release(&claim_lock);
  }
  return cp.seat->leave;
}

static uint32_t ask_to_leave(void) {
  cp_store(&cp.seat->leave, CP_LEAVE_ASKED);
  cp_notify(cp.seat);
  return answer_to_leave();
}

/* It says so first. */
static void await_pending(void) {
  for (uint64_t end = cp_now_us() + 20000000; !cp_load(&cp.pending);) {
    CHECK_THAT(cp_now_us() < end);
    pause_us(200);
  }
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
  await_pending();
  answer_hello = seat_is_taken;
  void *p = tensor();
  CHECK_THAT(!cp_arenas_hold(&cp.arenas, p) && hellos == 1 && !cp_load(&cp.pending));
  free(p);
  free(tensor());
  CHECK_THAT(hellos == 1); /* asked once */
  cp.pending = 1;
  answer_hello = seat_is_free;
  cp.seat_table = NULL;
  p = NULL;
  CHECK_THAT(!allocate(&p, 64, 1 << 16) && cp_arenas_hold(&cp.arenas, p) && hellos == 2);
  free(p);
  CHECK_THAT(ask_to_leave() == CP_LEAVE_STAYS && cp_load(&cp.attached));
}

static int seat_is_wanted(int fd, bool uses) {
  (void)fd, (void)uses;
  hellos++;
  set_up_again();
  return 0;
}

/* The helper answers while the process is still attaching. */
static int seat_is_claimed(int fd, bool uses) {
  seat_is_wanted(fd, uses);
  cp.seat->e_limit = cp.seat->p_limit = cp.p_cap = cp.e_cap = CP_GIB;
  CHECK_THAT(answer_to_leave() == CP_LEAVE_STAYS);
  return 0;
}

static int seat_of_another_device(int fd, bool uses) {
  (void)fd, (void)uses;
  hellos++;
  cp.text_count = 0;
  cp_store(&cp.attached, 1);
  return 0;
}

static void be_nobody(void) {
  cp_store(&cp.attached, 0);
  cp.allocs = cp.frees = cp.pending = 0;
  hellos = 0;
}

/* An earlier helper thread would answer for the next one. */
static void set_up_as_first(void) {
  be_nobody();
  if (stays) {
    CHECK_THAT(ask_to_leave() == CP_LEAVE_LEFT);
    await_pending();
    be_nobody();
  }
  set_up_again();
}

/* The daemon has asked before the helper thread was there. */
static void asked_while_it_attaches(void) {
  be_nobody();
  leave_at_once = CP_LEAVE_ASKED;
  answer_hello = seat_is_wanted;
  CHECK_THAT(!cp_first_hello(cp.fd) && answer_to_leave() == CP_LEAVE_LEFT);
  await_pending();
  CHECK_THAT(!cp_load(&cp.attached));
  answer_hello = seat_is_claimed;
  void *p = NULL;
  CHECK_THAT(!allocate(&p, 64, 1 << 16) && cp_arenas_hold(&cp.arenas, p) && hellos == 2);
  free(p);
  leave_at_once = CP_LEAVE_NO;
}

static void becomes_pending(void) {
  set_up_as_first();
  CHECK_THAT(ask_to_leave() == CP_LEAVE_LEFT);
  await_pending();
}

static void channel_was_closed(void) {
  becomes_pending();
  answer_hello = seat_is_free;
  int other = memfd_create("other", 0);
  CHECK_THAT(other >= 0 && dup2(other, cp.fd) == cp.fd);
  void *p = tensor();
  CHECK_THAT(!cp_arenas_hold(&cp.arenas, p) && !hellos && !cp_load(&cp.pending));
  free(p);
  close(other);
}

/* Nobody will speak over it again, so the daemon need not listen. */
static void refused_over_its_own_channel(void) {
  becomes_pending();
  int pair[2], inherited = cp.fd;
  CHECK_THAT(!socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair));
  cp.fd = pair[0];
  note_channel(pair[0]);
  from_attach_socket = true;
  answer_hello = seat_is_taken;
  free(tensor());
  CHECK_THAT(hellos == 1 && cp.fd == -1 && !recv(pair[1], &hellos, sizeof hellos, MSG_DONTWAIT));
  close(pair[1]);
  cp.fd = inherited;
}

/* Its tensors in ordinary memory are none of the device's. */
static void attaches_elsewhere(void) {
  becomes_pending();
  answer_hello = seat_of_another_device;
  void *p = tensor();
  CHECK_THAT(!cp_arenas_hold(&cp.arenas, p) && hellos == 1 && !cp.allocs);
  free(p);
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
    set_up_as_first();
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

/* ---- a fork begins to use its device, in several threads at once ---------------------------------------------------- */

static uint32_t may_begin, is_there, is_shut, shuts;
static pthread_t another;

static void *begins_too(void *unused) {
  (void)unused;
  cp_store(&is_there, 1);
  cp_handoff_begin(&may_begin, NULL);
  CHECK_THAT(cp_load(&is_shut)); /* what it does next needs a seat */
  return NULL;
}

/* The other thread comes between the decision and the gate. */
static void shut_slowly(void) {
  shuts++;
  CHECK_THAT(cp_load(&may_begin)); /* whoever finds it cleared goes on */
  CHECK_THAT(!pthread_create(&another, NULL, begins_too, NULL));
  while (!cp_load(&is_there)) pause_us(200);
  pause_us(20000);
  cp_store(&is_shut, 1);
}

static void begins_once(void) {
  uint32_t attached = cp_load(&cp.attached);
  cp_store(&cp.attached, 0);
  cp_store(&cp.pending, 0);
  cp_store(&may_begin, 1);
  cp_handoff_begin(&may_begin, shut_slowly);
  CHECK_THAT(!pthread_join(another, NULL));
  CHECK_THAT(shuts == 1 && cp_load(&cp.pending) && !cp_load(&may_begin));
  cp_store(&cp.pending, 0);
  cp_store(&cp.attached, attached);
}

#ifdef __SANITIZE_ADDRESS__
int main(void) {
  (void)begins_once, (void)leaves_and_comes_back, (void)asked_while_it_attaches, (void)channel_was_closed, (void)refused_over_its_own_channel, (void)attaches_elsewhere, (void)race;
  puts("skipped: the sanitizer has the allocator to itself");
  return 77;
}
#else
int main(void) {
  leaves_and_comes_back();
  asked_while_it_attaches();
  channel_was_closed();
  refused_over_its_own_channel();
  attaches_elsewhere();
  race();
  begins_once();
  return 0;
}
#endif
