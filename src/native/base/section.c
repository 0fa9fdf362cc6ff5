#include "base/section.h"

#include <signal.h>
#include <string.h>
#include <sys/uio.h>

#define SPINS 100

__thread struct cp_section cp_section;

uint32_t cp_section_tid(void) { return cp_section.tid = (uint32_t)syscall(SYS_gettid); }

void cp_section_deliver(void) {
  int saved = errno;
  uint64_t mask = cp_section.mask;
  cp_section.deferred = 0; /* first: a handler may never come back */
  CP_SIGNAL_FENCE();
  cp_add(&cp_syscalls, 1);
  syscall(SYS_rt_sigprocmask, SIG_SETMASK, &mask, NULL, sizeof mask);
  errno = saved;
}

/* Its parent's thread was in some, and its signals wait there. */
void cp_section_forked(void) {
  cp_section.depth = cp_section.tid = 0;
  if (cp_section.deferred) cp_section_deliver();
}

/* Without the program's handler for SIGABRT, which must not run here, and whatever is blocked. */
_Noreturn static void abort_plainly(void) {
  struct {
    void (*handler)(int);
    unsigned long flags;
    void (*restorer)(void);
    uint64_t mask;
  } plain = {.handler = SIG_DFL};
  uint64_t abort_ = 1ull << (SIGABRT - 1);
  syscall(SYS_rt_sigaction, SIGABRT, &plain, NULL, sizeof plain.mask);
  syscall(SYS_rt_sigprocmask, SIG_UNBLOCK, &abort_, NULL, sizeof abort_);
  for (;;) syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), SIGABRT);
}

void cp_section_broken(const char *why) {
  static const char prefix[] = "carpool: this job ends here: ";
  struct iovec v[3] = {
      {(void *)(uintptr_t)prefix, sizeof prefix - 1}, {(void *)(uintptr_t)why, strlen(why)}, {"\n", 1}};
  syscall(SYS_writev, STDERR_FILENO, v, 3);
  abort_plainly();
}

/* The word with which this thread sleeps, 0: it has the lock now. */
static uint32_t take_or_mark(struct cp_lock *l) {
  uint32_t word = cp_load(&l->word);
  if ((word & ~CP_SLEEPERS) == cp_tid())
    cp_section_broken("a signal handler that was not installed by sigaction() or signal() has called an intercepted "
                      "function in the middle of another one");
  uint32_t next = word ? word | CP_SLEEPERS : cp_tid() | CP_SLEEPERS; /* others may sleep as well */
  if (!__atomic_compare_exchange_n(&l->word, &word, next, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
    return take_or_mark(l);
  return word ? next : 0;
}

/* A thread that only waits has nothing of ours: then its signals need not wait, too. */
void cp_acquire_slowly(struct cp_lock *l) {
  for (int spin = 0; spin < SPINS; spin++)
    if (cp_take(l)) return;
  for (uint32_t word; (word = take_or_mark(l));) {
    cp_futex_wait(&l->word, word, -1);
    cp_section_end();
    cp_section_begin();
  }
}
