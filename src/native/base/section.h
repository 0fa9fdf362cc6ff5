/* Critical sections, and the locks that begin them.
 *
 * A handler of the program may touch arena memory or call an intercepted function at any instruction.  If it ran in a
 * thread that holds one of our locks it would wait for its own thread.  So while a thread is in a critical section its
 * signals are deferred: the wrapper of all handlers (job/signals.c) sees `depth`, blocks signals and sends the signal to
 * the thread once more; the end of the outermost section unblocks them.  That costs a system call only where a signal has
 * really come, and nothing but a count otherwise.
 *
 * A handler that the wrapper does not know (installed by a system call of the program's own) cannot be deferred.  Where it
 * comes back into the library the process ends with a message: each lock knows its holder, and the trap knows `depth`. */
#ifndef CARPOOL_SECTION_H
#define CARPOOL_SECTION_H
#include "base/common.h"

struct cp_section {
  uint32_t depth;    /* sections that this thread is in */
  uint32_t tid;      /* of this thread; 0: not asked for yet */
  uint32_t deferred; /* a signal waits for the end of the outermost section, and all are blocked */
  uint64_t mask;     /* what was blocked before: the kernel's set */
};
extern __thread struct cp_section cp_section __attribute__((tls_model("initial-exec")));

void cp_section_deliver(void); /* unblock what has been deferred */
uint32_t cp_section_tid(void); /* asks the kernel */
void cp_section_forked(void);  /* the child's only thread is in no section */
/* The state of the library is not whole, and this thread cannot wait until it is. */
_Noreturn void cp_section_broken(const char *why);

#define CP_SIGNAL_FENCE() __atomic_signal_fence(__ATOMIC_SEQ_CST) /* order as a handler of the same thread sees it */

static inline void cp_section_begin(void) {
  cp_section.depth++;
  CP_SIGNAL_FENCE();
}

static inline void cp_section_end(void) {
  CP_SIGNAL_FENCE();
  uint32_t depth = --cp_section.depth;
  CP_SIGNAL_FENCE();
  if (CP_UNLIKELY(cp_section.deferred) && !depth) cp_section_deliver();
}

/* For long waits in a section: a handler is to run, and will when this section ends. */
static inline bool cp_section_deferred(void) { return CP_UNLIKELY(cp_section.deferred) && cp_section.depth == 1; }

/* A futex lock that needs no initialisation and may be taken in a signal handler, provided that its holder never
 * touches arena memory.  0: free, otherwise the holder's thread id and whether a thread sleeps. */
struct cp_lock {
  uint32_t word;
};
#define CP_SLEEPERS 0x80000000u

static inline uint32_t cp_tid(void) { return CP_LIKELY(cp_section.tid) ? cp_section.tid : cp_section_tid(); }

/* In a section. */
static inline bool cp_take(struct cp_lock *l) {
  uint32_t zero = 0;
  return __atomic_compare_exchange_n(&l->word, &zero, cp_tid(), false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

static inline bool cp_try(struct cp_lock *l) {
  cp_section_begin();
  if (cp_take(l)) return true;
  cp_section_end();
  return false;
}

void cp_acquire_slowly(struct cp_lock *l);

static inline void cp_acquire(struct cp_lock *l) {
  cp_section_begin();
  if (CP_UNLIKELY(!cp_take(l))) cp_acquire_slowly(l);
}

static inline void cp_release(struct cp_lock *l) {
  if (__atomic_exchange_n(&l->word, 0, __ATOMIC_RELEASE) & CP_SLEEPERS) cp_futex_wake(&l->word);
  cp_section_end();
}

/* In a forked child: whoever held it is not there. */
static inline void cp_reset_lock(struct cp_lock *l) { cp_store(&l->word, 0); }
#endif
