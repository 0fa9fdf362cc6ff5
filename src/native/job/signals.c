/* The trap's signal stays ours, whatever the script does; every other handler of the program is called by a wrapper, which
 * defers it while its thread is in a critical section (base/section.h).  SIGINT and SIGTERM make a waiting job urgent. */
#include "weights/groups.h"
#include "base/libc.h"
#include "base/process.h"

#include <dlfcn.h>
#include <signal.h>
#include <string.h>
#include <ucontext.h>
#include <unistd.h>

#define SIGNALS 65
#define LEAST_STACK ((uintptr_t)2048) /* that the trap needs below the kernel's frame, with some to spare */

static int (*next_sigaction)(int, const struct sigaction *, struct sigaction *);
static int (*next_sigmask)(int, const sigset_t *, sigset_t *);
static int (*next_sigprocmask)(int, const sigset_t *, sigset_t *);

/* What the program believes to be installed. */
static struct sigaction users[SIGNALS];
static pid_t process; /* whose handlers these are: the child of vfork() has its own, and our memory */
static uint32_t started; /* from the first attachment or the first weights on, also while the seat is another process's */

/* SIGKILL and SIGSTOP have no handlers, and two signals are libc's own. */
static bool is_ours(int sig) { return sig > 0 && sig < SIGNALS && sig != SIGKILL && sig != SIGSTOP && sig != 32 && sig != 33; }

typedef void (*handler_fn)(int, siginfo_t *, void *);

/* NULL: none.  One that takes the number alone is called as the kernel calls it, with all three. */
static handler_fn handler_of(int sig) {
  struct sigaction a = {.sa_sigaction = cp_load(&users[sig].sa_sigaction)};
  return a.sa_handler == SIG_DFL || a.sa_handler == SIG_IGN ? NULL : a.sa_sigaction;
}

/* ---- the trap -------------------------------------------------------------------------------------------------------- */

/* A real fault: the program's own handler, or the default action when the instruction is repeated. */
static void not_ours(int sig, siginfo_t *info, void *context) {
  handler_fn handler = handler_of(sig);
  if (handler) {
    if (users[sig].sa_flags & (int)SA_RESETHAND) users[sig].sa_handler = SIG_DFL;
    handler(sig, info, context);
    return;
  }
  struct sigaction plain = {.sa_handler = SIG_DFL};
  next_sigaction(sig, &plain, NULL);
}

static bool in_window(const void *p) {
  return cp_arenas_hold(&cp.arenas, p) && cp_arenas_window(&cp.arenas, p)->kind != CP_UNUSED;
}

/* A touch of memory that is not there just now.  False: a real fault. */
static bool trap(const void *address) {
  if (!cp_load(&cp.attached) || !in_window(address)) return cp_groups_trap(address);
  if (cp.child)
    cp_child_trap();
  else
    cp_trap(address);
  return true;
}

/* The program's handler may run on a stack of its own, which is as small as the program pleases. */
static void check_stack(const ucontext_t *context) {
  const stack_t *own = &context->uc_stack;
  uintptr_t room = (uintptr_t)__builtin_frame_address(0) - (uintptr_t)own->ss_sp;
  if (room < own->ss_size && room < LEAST_STACK)
    cp_section_broken("a signal handler has touched a tensor, and its stack (sigaltstack) is too small for that: give it "
                      "32 KiB more");
}

static void on_fault(int sig, siginfo_t *info, void *context) {
  int saved = errno;
  bool fault = info->si_code > 0;
  if (fault && cp_section.depth)
    cp_section_broken("a fault in the middle of an operation on its memory (a signal handler that was not installed by "
                      "sigaction() or signal(), or a fork handler, has touched a tensor?)");
  if (fault) check_stack(context);
  if (!fault || !trap(info->si_addr)) not_ours(sig, info, context);
  errno = saved;
}

/* ---- handlers of the program ----------------------------------------------------------------------------------------- */

static __thread uint64_t noted __attribute__((tls_model("initial-exec"))); /* requests that have been deferred */

static uint64_t bit_of(int sig) { return 1ull << (sig - 1); }

/* What kills where it is blocked, and abort(), which must not return. */
static uint64_t never_deferred(void) {
  return bit_of(SIGSEGV) | bit_of(SIGBUS) | bit_of(SIGFPE) | bit_of(SIGILL) | bit_of(SIGTRAP) | bit_of(SIGSYS) |
         bit_of(SIGABRT) | bit_of(32) | bit_of(33);
}

static void send_again(int sig, siginfo_t *info) {
  cp_add(&cp_syscalls, 1);
  syscall(SYS_rt_tgsigqueueinfo, getpid(), (int)cp_tid(), sig, info);
}

/* Of several that came at once each is deferred, the one that interrupted the section last: its mask is the section's. */
static void defer(int sig, siginfo_t *info, ucontext_t *context) {
  uint64_t blocked = ~never_deferred();
  cp_add(&cp_syscalls, 1);
  syscall(SYS_rt_sigprocmask, SIG_BLOCK, &blocked, NULL, sizeof blocked); /* else SA_NODEFER has it back at once */
  memcpy(&cp_section.mask, &context->uc_sigmask, sizeof cp_section.mask);
  memcpy(&context->uc_sigmask, &blocked, sizeof blocked);
  noted |= bit_of(sig);
  cp_section.deferred = 1;
  send_again(sig, info);
}

/* At once, also in a section: it may be what a wait there is to be ended for. */
static void note_request(int sig) {
  if (sig == SIGINT) cp_add(&cp.interrupts, 1);
  if (!cp_active()) return;
  cp_store(&cp.urgent_us, cp_now_us());
  if (sig == SIGINT) cp_futex_wake(&cp.seat->grow_ack);
  if (cp_load(&cp.seat->want) == CP_WANT_TURN) {
    cp_store(&cp.seat->want, CP_WANT_URGENT);
    cp_send(CP_URGENT, 0, 0, 0, 0);
  }
}

static void reset_handler(int sig) {
  struct sigaction plain = {.sa_handler = SIG_DFL};
  users[sig].sa_handler = SIG_DFL;
  next_sigaction(sig, &plain, NULL);
}

static int install(int sig);

static void on_signal(int sig, siginfo_t *info, void *context) {
  int saved = errno;
  bool request = (sig == SIGINT || sig == SIGTERM) && !(noted & bit_of(sig));
  if (request) note_request(sig);
  noted &= ~bit_of(sig);
  bool held = cp_section.depth && !(never_deferred() & bit_of(sig));
  handler_fn handler = handler_of(sig);
  if (held)
    defer(sig, info, context);
  else if (cp_section.depth && info->si_code > 0)
    cp_section_broken("a fault in the middle of an operation on its memory; has the memory been taken away?");
  else if (!handler)
    install(sig), send_again(sig, info); /* the program has just taken it back */
  else if (users[sig].sa_flags & (int)SA_RESETHAND)
    reset_handler(sig);
  errno = saved;
  if (!held && handler) handler(sig, info, context);
}

static int install(int sig) {
  struct sigaction a = users[sig];
  if (sig == SIGSEGV) {
    a = (struct sigaction){.sa_flags = SA_SIGINFO | SA_NODEFER | SA_RESTART};
    a.sa_sigaction = on_fault;
  } else if (handler_of(sig)) {
    a.sa_sigaction = on_signal;
    a.sa_flags = (a.sa_flags | SA_SIGINFO) & ~(int)SA_RESETHAND; /* the wrapper's to obey: it may be called twice */
  }
  return next_sigaction(sig, &a, NULL);
}

__attribute__((constructor)) static void find_next(void) {
  next_sigaction = (int (*)(int, const struct sigaction *, struct sigaction *))dlsym(RTLD_NEXT, "sigaction");
  next_sigmask = (int (*)(int, const sigset_t *, sigset_t *))dlsym(RTLD_NEXT, "pthread_sigmask");
  next_sigprocmask = (int (*)(int, const sigset_t *, sigset_t *))dlsym(RTLD_NEXT, "sigprocmask");
}

int cp_signals_start(void) {
  sigset_t trap;
  if (cp_load(&started)) return 0;
  if (cp_libc_is_foreign()) return errno = ENOSYS, -1;
  if (!next_sigaction) find_next(); /* a constructor that has run before ours */
  sigemptyset(&trap);
  sigaddset(&trap, SIGSEGV);
  next_sigmask(SIG_UNBLOCK, &trap, NULL);
  for (int sig = 1; sig < SIGNALS; sig++)
    if (is_ours(sig) && (next_sigaction(sig, NULL, &users[sig]) || install(sig))) return -1;
  process = getpid();
  cp_store(&started, 1);
  return 0;
}

void cp_signals_forked(void) { process = getpid(); }

/* ---- interposed ------------------------------------------------------------------------------------------------------ */

CP_EXPORT int sigaction(int sig, const struct sigaction *action, struct sigaction *old) {
  if (!next_sigaction) find_next();
  if (!cp_load(&started) || !is_ours(sig) || getpid() != process) return next_sigaction(sig, action, old);
  struct sigaction before = users[sig];
  if (action) {
    users[sig] = *action;
    if (install(sig)) {
      users[sig] = before;
      return -1;
    }
  }
  if (old) *old = before;
  return 0;
}

static sighandler_t set_handler(int sig, sighandler_t handler, int flags) {
  struct sigaction a = {.sa_handler = handler, .sa_flags = flags}, old;
  sigemptyset(&a.sa_mask);
  return sigaction(sig, &a, &old) ? SIG_ERR : old.sa_handler;
}

CP_EXPORT sighandler_t signal(int sig, sighandler_t handler) { return set_handler(sig, handler, SA_RESTART); }
CP_EXPORT sighandler_t bsd_signal(int sig, sighandler_t handler) { return set_handler(sig, handler, SA_RESTART); }
CP_EXPORT sighandler_t sysv_signal(int sig, sighandler_t handler) {
  return set_handler(sig, handler, SA_RESETHAND | SA_NODEFER);
}

/* A thread that blocks SIGSEGV dies at its first trap, so the mask never contains it. */
static const sigset_t *without_trap(int how, const sigset_t *set, sigset_t *copy) {
  if (!set || how == SIG_UNBLOCK || !cp_load(&started)) return set;
  *copy = *set;
  sigdelset(copy, SIGSEGV);
  return copy;
}

CP_EXPORT int pthread_sigmask(int how, const sigset_t *set, sigset_t *old) {
  sigset_t copy;
  if (!next_sigmask) find_next();
  return next_sigmask(how, without_trap(how, set, &copy), old);
}

CP_EXPORT int sigprocmask(int how, const sigset_t *set, sigset_t *old) {
  sigset_t copy;
  if (!next_sigprocmask) find_next();
  return next_sigprocmask(how, without_trap(how, set, &copy), old);
}
