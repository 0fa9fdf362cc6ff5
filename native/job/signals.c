/* The trap's signal stays ours, whatever the script does; SIGINT and SIGTERM make a waiting job urgent. */
#include "weights/groups.h"
#include "base/process.h"

#include <dlfcn.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

static int (*next_sigaction)(int, const struct sigaction *, struct sigaction *);
static int (*next_sigmask)(int, const sigset_t *, sigset_t *);
static int (*next_sigprocmask)(int, const sigset_t *, sigset_t *);

/* What the program believes to be installed. */
static struct sigaction users[3];
static const int ours[3] = {SIGSEGV, SIGINT, SIGTERM};
static uint32_t started; /* from the first attachment or the first weights on, also while the seat is another process's */

static int index_of(int sig) {
  for (int i = 0; i < 3; i++)
    if (ours[i] == sig) return i;
  return -1;
}

static bool is_function(const struct sigaction *a) { return a->sa_handler != SIG_DFL && a->sa_handler != SIG_IGN; }

static void call(const struct sigaction *a, int sig, siginfo_t *info, void *context) {
  if (a->sa_flags & SA_SIGINFO)
    a->sa_sigaction(sig, info, context);
  else
    a->sa_handler(sig);
}

/* A real fault: the program's own handler, or the default action when the instruction is repeated. */
static void not_ours(int sig, siginfo_t *info, void *context) {
  struct sigaction a = users[0];
  if (is_function(&a)) {
    if (a.sa_flags & SA_RESETHAND) users[0].sa_handler = SIG_DFL;
    call(&a, sig, info, context);
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

static void on_fault(int sig, siginfo_t *info, void *context) {
  int saved = errno;
  if (info->si_code <= 0 || !trap(info->si_addr)) not_ours(sig, info, context);
  errno = saved;
}

static void on_request(int sig, siginfo_t *info, void *context) {
  int saved = errno;
  if (cp_active()) {
    cp_store(&cp.urgent_us, cp_now_us());
    if (sig == SIGINT) {
      cp_add(&cp.interrupts, 1);
      cp_futex_wake(&cp.seat->grow_ack);
    }
    if (cp_load(&cp.seat->want) == CP_WANT_TURN) {
      cp_store(&cp.seat->want, CP_WANT_URGENT);
      cp_send(CP_URGENT, 0, 0, 0, 0);
    }
  }
  errno = saved;
  struct sigaction a = users[index_of(sig)];
  if (is_function(&a)) call(&a, sig, info, context);
}

static int install(int i) {
  struct sigaction a = users[i];
  if (i == 0) {
    a = (struct sigaction){.sa_flags = SA_SIGINFO | SA_NODEFER | SA_RESTART};
    a.sa_sigaction = on_fault;
  } else if (is_function(&a)) {
    a.sa_sigaction = on_request;
    a.sa_flags |= SA_SIGINFO;
  }
  return next_sigaction(ours[i], &a, NULL);
}

__attribute__((constructor)) static void find_next(void) {
  next_sigaction = (int (*)(int, const struct sigaction *, struct sigaction *))dlsym(RTLD_NEXT, "sigaction");
  next_sigmask = (int (*)(int, const sigset_t *, sigset_t *))dlsym(RTLD_NEXT, "pthread_sigmask");
  next_sigprocmask = (int (*)(int, const sigset_t *, sigset_t *))dlsym(RTLD_NEXT, "sigprocmask");
}

int cp_signals_start(void) {
  sigset_t trap;
  if (cp_load(&started)) return 0;
  sigemptyset(&trap);
  sigaddset(&trap, SIGSEGV);
  next_sigmask(SIG_UNBLOCK, &trap, NULL);
  for (int i = 0; i < 3; i++)
    if (next_sigaction(ours[i], NULL, &users[i]) || install(i)) return -1;
  cp_store(&started, 1);
  return 0;
}

/* ---- interposed ------------------------------------------------------------------------------------------------------ */

CP_EXPORT int sigaction(int sig, const struct sigaction *action, struct sigaction *old) {
  if (!next_sigaction) find_next();
  int i = cp_load(&started) ? index_of(sig) : -1;
  if (i < 0) return next_sigaction(sig, action, old);
  struct sigaction before = users[i];
  if (action) {
    users[i] = *action;
    if (install(i)) {
      users[i] = before;
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
