/* Handlers of the program that touch arena memory, at any instruction of a thread that holds our locks: they are deferred,
 * and nothing is lost or changed by that.  Handlers that cannot be deferred end the process with a message. */
#pragma GCC diagnostic ignored "-Wunused-function" /* what others need of it */
#define on_fault on_fault_of_tests
#include "tests/job.h"
#undef on_fault
#include "job/signals.c"

#include <setjmp.h>

bool cp_groups_trap(const void *address) { return (void)address, false; }
void cp_child_trap(void) {}

#ifndef __SANITIZE_ADDRESS__
#define SPARE 256 /* the frame of the library's handler reaches below its address */
#else
#define SPARE 32768 /* its frames are larger */
#endif
static volatile sig_atomic_t calls_, value, on_own_stack;
static uint64_t *tensor;
static sigjmp_buf away;

static void touch(int sig) {
  (void)sig;
  tensor[0]++;
  calls_++;
}

static void touch_with_value(int sig, siginfo_t *info, void *context) {
  (void)context;
  value = info->si_value.sival_int;
  touch(sig);
}

static char own_stack[1 << 17] __attribute__((aligned(64)));

static void touch_on_own_stack(int sig) {
  char here;
  on_own_stack = &here >= own_stack && &here < own_stack + sizeof own_stack;
  touch(sig);
}

static void touch_and_leave(int sig) {
  touch(sig);
  siglongjmp(away, 1);
}

static void handle(int sig, void (*handler)(int), int flags) {
  struct sigaction a = {.sa_handler = handler, .sa_flags = flags};
  CHECK_THAT(!sigaction(sig, &a, NULL));
}

static sigset_t blocked_now(void) {
  sigset_t now = {0};
  CHECK_THAT(!pthread_sigmask(SIG_BLOCK, NULL, &now));
  return now;
}

/* Closed, with the turn: the next touch opens. */
static void shut_all(void) {
  cp_acquire(&cp.gate_lock);
  if (cp.gate == CP_OPEN) CHECK_THAT(cp.backend->shut());
  cp_release(&cp.gate_lock);
}

/* ---- one lock after another ------------------------------------------------------------------------------------------ */

static struct cp_lock *const locks[] = {&cp.grow_lock, &cp.pool_lock, &cp.gate_lock, &claim_lock};

static void deferred_by_each_lock(int flags, void (*handler)(int)) {
  handle(SIGUSR1, handler, flags);
  for (size_t i = 0; i < sizeof locks / sizeof *locks; i++) {
    sigset_t before = blocked_now(), after;
    shut_all();
    int calls_before = calls_;
    cp_acquire(locks[i]);
    raise(SIGUSR1);
    CHECK_THAT(calls_ == calls_before);
    cp_release(locks[i]);
    CHECK_THAT(calls_ == calls_before + 1);
    after = blocked_now();
    CHECK_THAT(!memcmp(&before, &after, sizeof before));
  }
}

static void deferred_until_the_last_lock_is_free(void) {
  handle(SIGUSR1, touch, 0);
  handle(SIGUSR2, touch, SA_NODEFER);
  shut_all();
  int before = calls_;
  cp_acquire(&cp.grow_lock);
  cp_acquire(&cp.pool_lock);
  raise(SIGUSR1);
  raise(SIGUSR2);
  cp_release(&cp.grow_lock);
  CHECK_THAT(calls_ == before);
  cp_release(&cp.pool_lock);
  CHECK_THAT(calls_ == before + 2 && !cp_section.deferred && !cp_section.depth);
}

static void deferred_with_its_value(void) {
  struct sigaction a = {.sa_flags = SA_SIGINFO};
  a.sa_sigaction = touch_with_value;
  CHECK_THAT(!sigaction(SIGRTMIN + 1, &a, NULL));
  cp_acquire(&cp.pool_lock);
  CHECK_THAT(!sigqueue(getpid(), SIGRTMIN + 1, (union sigval){.sival_int = 4711}));
  cp_release(&cp.pool_lock);
  CHECK_THAT(value == 4711);
}

static void called_once(void) {
  struct sigaction now;
  handle(SIGUSR1, touch, (int)SA_RESETHAND);
  int before = calls_;
  cp_acquire(&cp.pool_lock);
  raise(SIGUSR1);
  cp_release(&cp.pool_lock);
  CHECK_THAT(calls_ == before + 1 && !sigaction(SIGUSR1, NULL, &now) && now.sa_handler == SIG_DFL);
  handle(SIGUSR1, touch, (int)SA_RESETHAND);
  CHECK_THAT(!sigaction(SIGUSR1, NULL, &now) && now.sa_handler == touch && now.sa_flags & (int)SA_RESETHAND);
}

static void runs_on_its_own_stack(void) {
  stack_t stack = {.ss_sp = own_stack, .ss_size = sizeof own_stack}, none = {.ss_flags = SS_DISABLE};
  CHECK_THAT(!sigaltstack(&stack, NULL));
  deferred_by_each_lock(SA_ONSTACK, touch_on_own_stack);
  CHECK_THAT(on_own_stack && !sigaltstack(&none, NULL));
}

static void leaves_by_a_jump(void) {
  handle(SIGUSR1, touch_and_leave, 0);
  for (volatile size_t i = 0; i < sizeof locks / sizeof *locks; i++) {
    shut_all();
    if (!sigsetjmp(away, 1)) {
      cp_acquire(locks[i]);
      raise(SIGUSR1);
      cp_release(locks[i]);
      CHECK_THAT(!"it has left");
    }
    CHECK_THAT(!cp_section.depth && !locks[i]->word);
  }
}

/* While a thread waits for its turn handlers run at once; one may leave, and another wait for the same turn. */
static void leaves_while_it_waits(void) {
  cp_turn_end(CP_BY_BOUNDARY);
  wait_for(CP_RELEASED);
  timer_t timer;
  struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR2};
  struct itimerspec soon = {.it_value.tv_nsec = 20000000};
  handle(SIGUSR2, touch_and_leave, SA_NODEFER);
  CHECK_THAT(!timer_create(CLOCK_MONOTONIC, &event, &timer));
  pid_t job = getpid();
  pid_t granter = fork(); /* a daemon that has the seat table mapped */
  if (!granter) {
    wait_for(CP_WANT);
    pause_us(50000); /* the signal comes meanwhile: its handler waits, too */
    give();
    cp_futex_wake(&cp.seat->turn);
    _exit(kill(job, 0));
  }
  if (!sigsetjmp(away, 1)) {
    CHECK_THAT(!timer_settime(timer, 0, &soon, NULL)); /* not before there is a place to leave to */
    tensor[1]++;
    CHECK_THAT(!"it has left");
  }
  int status;
  CHECK_THAT(waitpid(granter, &status, 0) == granter && !status && !timer_delete(timer));
  CHECK_THAT(cp.gate == CP_OPEN && !cp_section.depth);
}

/* ---- what cannot be deferred ----------------------------------------------------------------------------------------- */

static void install_raw(int sig, void (*handler)(int)) {
  struct sigaction a = {.sa_handler = handler};
  CHECK_THAT(!next_sigaction(sig, &a, NULL));
}

static void lock_again(int sig) {
  (void)sig;
  cp_acquire(&cp.pool_lock);
}

static void shut_and_lock(void) {
  shut_all();
  cp_acquire(&cp.pool_lock);
}

static void bypasses_the_wrapper(void) {
  install_raw(SIGUSR1, touch);
  shut_and_lock();
  raise(SIGUSR1);
}

static void bypasses_it_and_locks(void) {
  install_raw(SIGUSR1, lock_again);
  shut_and_lock();
  raise(SIGUSR1);
}

/* On the upper end of the large one. */
static void touch_on_stack(size_t bytes) {
  stack_t stack = {.ss_sp = own_stack + sizeof own_stack - bytes, .ss_size = bytes};
  CHECK_THAT(!sigaltstack(&stack, NULL));
  handle(SIGUSR1, touch, SA_ONSTACK);
  raise(SIGUSR1);
}

static const char *trap_begins;

static void note_where(int sig, siginfo_t *info, void *context) {
  trap_begins = __builtin_frame_address(0);
  on_fault(sig, info, context);
}

/* Above the trap: two of the kernel's frames, and the handlers'.  sysconf(_SC_MINSIGSTKSZ) is no measure of the kernel's: it
 * counts registers, too, that no process has that has not asked for them (AMX). */
static size_t used_above_the_trap(void) {
  struct sigaction noting = {.sa_flags = SA_SIGINFO | SA_NODEFER | SA_RESTART}, own;
  noting.sa_sigaction = note_where;
  CHECK_THAT(!next_sigaction(SIGSEGV, &noting, &own));
  shut_all();
  touch_on_stack(sizeof own_stack);
  CHECK_THAT(!next_sigaction(SIGSEGV, &own, NULL) && trap_begins);
  return (size_t)(own_stack + sizeof own_stack - trap_begins);
}

static void has_too_small_a_stack(void) {
  size_t bytes = used_above_the_trap() + LEAST_STACK * 3 / 4;
  shut_all();
  touch_on_stack(bytes);
}

/* A turn begins in a trap that has as much as it asks for, and it takes no more. */
static void has_just_enough_of_a_stack(void) {
  stack_t none = {.ss_flags = SS_DISABLE};
  size_t bytes = used_above_the_trap() + LEAST_STACK + SPARE, below = sizeof own_stack - bytes;
  cp_turn_end(CP_BY_BOUNDARY);
  wait_for(CP_RELEASED);
  give();
  memset(own_stack, 0x5a, below);
  int before = calls_;
  touch_on_stack(bytes);
  CHECK_THAT(calls_ == before + 1 && cp.gate == CP_OPEN && !sigaltstack(&none, NULL));
  for (size_t i = 0; i < below; i++) CHECK_THAT(own_stack[i] == 0x5a);
}

static void faults_in_a_section(void) {
  handle(SIGBUS, touch_and_leave, 0);
  int file = memfd_create("gone", 0);
  volatile char *p = mmap(NULL, CP_PAGE, PROT_READ, MAP_SHARED, file, 0);
  cp_acquire(&cp.pool_lock);
  if (!sigsetjmp(away, 1)) (void)*p;
}

static void ends_with(void (*does)(void), const char *message) {
  char text[512] = "";
  int status, out[2];
  CHECK_THAT(!pipe(out));
  pid_t pid = fork();
  if (!pid) {
    dup2(out[1], STDERR_FILENO);
    cp_signals_forked();
    alarm(20);
    does();
    _exit(0);
  }
  close(out[1]);
  CHECK_THAT(waitpid(pid, &status, 0) == pid && read(out[0], text, sizeof text - 1) > 0);
  close(out[0]);
  if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGABRT || !strstr(text, message)) {
    fprintf(stderr, "status %x, and: %s\n", status, text);
    exit(1);
  }
}

/* The program asks what it has installed, and takes it back. */
static void tells_the_program_its_own(void) {
  struct sigaction now;
  handle(SIGUSR1, touch, SA_RESTART);
  CHECK_THAT(!sigaction(SIGUSR1, NULL, &now) && now.sa_handler == touch && now.sa_flags == SA_RESTART);
  CHECK_THAT(signal(SIGUSR1, SIG_IGN) == touch && !raise(SIGUSR1) && signal(SIGUSR1, SIG_DFL) == SIG_IGN);
}

/* Which has memory in common with its parent, as the children of Python's subprocess have. */
static void keeps_them_beside_a_vfork(void) {
  struct sigaction now;
  int before = calls_, status;
  handle(SIGUSR1, touch, 0);
  pid_t pid = vfork();
  if (!pid) {
    signal(SIGUSR1, SIG_DFL);
    _exit(0);
  }
  CHECK_THAT(waitpid(pid, &status, 0) == pid && !status && !raise(SIGUSR1) && calls_ == before + 1);
  CHECK_THAT(!sigaction(SIGUSR1, NULL, &now) && now.sa_handler == touch);
}

int main(void) {
  no_helper = true;
  handle(SIGUSR1, touch, 0); /* before the wrapper is there */
  begin();
  tensor = block;
  CHECK_THAT(!cp_signals_start());
  uint64_t before = tensor[0];
  cp_acquire(&cp.gate_lock);
  raise(SIGUSR1);
  cp_release(&cp.gate_lock);
  deferred_by_each_lock(0, touch);
  deferred_by_each_lock(SA_NODEFER, touch);
  deferred_until_the_last_lock_is_free();
  deferred_with_its_value();
  called_once();
  runs_on_its_own_stack();
  leaves_by_a_jump();
  leaves_while_it_waits();
  has_just_enough_of_a_stack();
  CHECK_THAT(tensor[0] == before + (uint64_t)calls_);
  ends_with(bypasses_the_wrapper, "a signal handler that was not installed by");
  ends_with(bypasses_it_and_locks, "has called an intercepted function");
  ends_with(has_too_small_a_stack, "too small");
  ends_with(faults_in_a_section, "has the memory been taken away?");
  keeps_them_beside_a_vfork();
  tells_the_program_its_own();
  return 0;
}
