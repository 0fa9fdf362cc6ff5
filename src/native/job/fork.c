/* fork(): the child must see its parent's tensors as they were, whatever the parent's pages become.
 *
 * The parent closes its arenas and forks.  At its next touch (or when the turn is about to go, or when a child asks)
 * the snapshot is settled: children that have meanwhile gone on to exec or exit need none; otherwise the live bytes are
 * copied once into a memfd that all pending children share, each mapping it privately at the same addresses.
 * So fork followed by exec copies nothing, and a parent that forks four workers in a row pays for one snapshot. */
#include "base/core_dump.h"
#include "base/libc.h"
#include "base/process.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <signal.h>

#define MOST_CHILDREN 256
#define EXEC_PATIENCE_US 5000

enum { PENDING = 0, WANTED = 1, READY = 2, GONE = 3 };

/* One per round of forks, in memory shared by the parent and its children. */
struct generation {
  uint32_t state; /* futex */
  pid_t parent;
};

static struct generation *round_;
static int store_fd = -1;
static struct cp_store live; /* what was alive at the first fork of the round */
static bool from_residue;    /* ephemeral bytes lie in the residue store, not behind the parking range */
static pid_t children[MOST_CHILDREN];
static uint32_t child_count;
static uint32_t settled = 1; /* futex: 0 while a round is pending */
static uint32_t asked;       /* a trapped thread of the parent waits */
static struct cp_lock child_lock;

bool cp_fork_pending(void) { return cp_load(&settled) == 0; }

void cp_fork_wait(void) {
  cp_store(&asked, 1);
  cp_notify(cp.seat);
  cp_futex_wait(&settled, 0, 100000);
}

/* ---- parent ------------------------------------------------------------------------------------------------------------- */

/* Not strtoul: with newer headers that is a function which only the newest glibc has. */
static unsigned long number(const char *text) {
  unsigned long n = 0;
  for (; *text >= '0' && *text <= '9'; text++) n = 10 * n + (unsigned long)(*text - '0');
  return n;
}

/* Start of a process's stack: it changes with exec and with nothing else.  0: the process is gone. */
static unsigned long stack_of(pid_t pid) {
  char path[32], text[1024];
  snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
  int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  long n = syscall(SYS_read, fd, text, sizeof text - 1);
  syscall(SYS_close, fd);
  if (n <= 0) return 0;
  text[n] = 0;
  char *p = strrchr(text, ')'); /* the name may hold anything */
  if (!p || p[2] == 'Z' || p[2] == 'X') return 0;
  for (int field = 2; field < 28 && p; field++) p = strchr(p + 1, ' ');
  return p ? number(p + 1) : 0;
}

/* Children that still run this program's image. */
static bool children_remain(void) {
  unsigned long ours = stack_of(getpid());
  uint32_t n = 0;
  for (uint32_t i = 0; i < child_count; i++)
    if (stack_of(children[i]) == ours) children[n++] = children[i];
  child_count = n;
  return n != 0;
}

static off_t place(const struct cp_run *r) { return (off_t)(r->window * cp.arenas.window + r->start); }

/* Chunk by chunk: some of them may lie in the host store.  Of a job that is offloaded, what does not lie there has no
 * content, and what would be found in its place belongs to another job. */
static int write_run(const struct cp_run *r) {
  const struct cp_host *h = &cp.arenas.host;
  bool out = cp_is_out();
  size_t at = (size_t)place(r), end = at + r->length;
  for (size_t next; at < end; at = next) {
    size_t chunk = at / CP_CHUNK;
    next = (chunk + 1) * CP_CHUNK < end ? (chunk + 1) * CP_CHUNK : end;
    bool stored = cp_host_has(h, chunk);
    if (!stored && out) continue;
    const char *from = stored ? h->memory + at : cp_arenas_parked(&cp.arenas, 0) + at;
    if (cp_write_all(store_fd, from, next - at, (off_t)at)) return -1;
  }
  return 0;
}

static int snapshot(void) {
  if (store_fd < 0) return -1;
  for (size_t i = 0; i < live.runs; i++)
    if (write_run(&live.run[i])) return -1;
  for (size_t i = 0; i < cp.arenas.residue.runs && from_residue; i++) {
    const struct cp_run *r = &cp.arenas.residue.run[i];
    if (cp_write_all(store_fd, cp.arenas.residue.memory + r->saved, r->length, place(r))) return -1;
  }
  return 0;
}

static void end_round(uint32_t state) {
  cp_store(&round_->state, state);
  cp_futex_wake(&round_->state);
  munmap(round_, CP_PAGE); /* the children have their own mapping of it */
  round_ = NULL;
  if (store_fd >= 0) syscall(SYS_close, store_fd);
  store_fd = -1;
  child_count = 0;
  cp_store(&asked, 0);
  cp_store(&settled, 1);
  cp_futex_wake(&settled);
}

/* Gate lock held, a round is pending. */
void cp_fork_settle(void) {
  uint64_t begin = cp_now_us();
  bool wanted = cp_load(&round_->state) == WANTED;
  while (!wanted && children_remain() && cp_now_us() - begin < EXEC_PATIENCE_US) {
    struct timespec t = {0, 200000};
    nanosleep(&t, NULL);
    wanted = cp_load(&round_->state) == WANTED;
  }
  if (!wanted && !children_remain()) {
    end_round(GONE);
    return;
  }
  bool lock = cp.gate == CP_CLOSED; /* otherwise it is held */
  if (lock) cp_host_lock(&cp.arenas.host);
  bool failed = snapshot() != 0;
  if (lock) cp_host_unlock(&cp.arenas.host);
  if (failed) cp_failure = "no memory for the snapshot of a forked child";
  end_round(failed ? GONE : READY);
}

/* A round may end in any thread, and is unmapped then: who does not hold the gate lock must not look at it. */
void cp_fork_answer(void) {
  cp_acquire(&cp.gate_lock);
  if (cp_fork_pending() && (cp_load(&asked) || cp_load(&round_->state) == WANTED)) cp_fork_settle();
  cp_release(&cp.gate_lock);
}

/* Pool and gate locks held.  False: nothing is alive, so nothing has to be kept. */
static bool begin_round(void) {
  if (cp_fork_pending()) return true;
  cp_store_clear(&live);
  from_residue = cp.gate == CP_CLOSED;
  for (uint32_t i = 0; i < CP_WINDOWS; i++) {
    enum cp_kind kind = cp.arenas.win[i].kind;
    if (kind == CP_UNUSED || (from_residue && kind == CP_EPHEMERAL && !cp.arenas.packed)) continue;
    if (cp_store_collect(&live, &cp.arenas, i)) return false;
  }
  if (!live.runs && !cp.arenas.residue.runs) return false;
  round_ = mmap(NULL, CP_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (round_ == MAP_FAILED) return round_ = NULL, false;
  round_->parent = getpid();
  store_fd = (int)syscall(SYS_memfd_create, "carpool-fork", MFD_CLOEXEC);
  if (store_fd >= 0 && ftruncate(store_fd, (off_t)(CP_WINDOWS * cp.arenas.window))) {
    syscall(SYS_close, store_fd);
    store_fd = -1;
  }
  if (cp.gate == CP_OPEN) {
    cp_store(&cp.gate, CP_HELD);
    cp_arenas_close(&cp.arenas);
  }
  cp_store(&settled, 0);
  return true;
}

/* ---- child -------------------------------------------------------------------------------------------------------------- */

static void die(const char *why) {
  static const char prefix[] = "carpool: a forked child cannot see its parent's tensors: ";
  if (write(2, prefix, sizeof prefix - 1) < 0 || write(2, why, strlen(why)) < 0 || write(2, "\n", 1) < 0) _exit(120);
  signal(SIGABRT, SIG_DFL);
  abort();
}

static void map_snapshot(void) {
  for (uint32_t i = 0; i < CP_WINDOWS; i++) {
    struct cp_window *w = &cp.arenas.win[i];
    if (w->kind == CP_UNUSED) continue;
    off_t at = (off_t)(i * cp.arenas.window);
    if (mmap(w->base, cp.arenas.window, PROT_READ | PROT_WRITE, MAP_FIXED | MAP_PRIVATE | MAP_NORESERVE, store_fd, at) ==
        MAP_FAILED)
      die("no address space");
    cp_leave_out_of_cores(w->base, cp.arenas.window);
  }
  syscall(SYS_close, store_fd);
  store_fd = -1;
  round_ = NULL;
}

void cp_child_trap(void) {
  cp_acquire(&child_lock);
  while (round_) {
    uint32_t state = cp_load(&round_->state), pending = PENDING;
    if (state == READY) {
      map_snapshot();
      break;
    }
    if (state == GONE) die("there was no memory for a snapshot");
    if (state == PENDING) __atomic_compare_exchange_n(&round_->state, &pending, WANTED, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    cp_notify(cp.seat); /* the parent's seat: its helper thread answers */
    cp_futex_wait(&round_->state, WANTED, 1000000);
    if (cp_load(&round_->state) == WANTED && kill(round_->parent, 0) && errno == ESRCH) die("the parent has ended");
  }
  cp_release(&child_lock);
}

static void become_child(void) {
  cp.child = 1;
  cp_reset_lock(&cp.grow_lock);
  cp_reset_lock(&cp.pool_lock);
  cp_reset_lock(&cp.gate_lock);
  cp_reset_lock(&child_lock);
  cp_host_abandon(&cp.arenas.host);
  syscall(SYS_close, cp.fd); /* children hold no seat */
  cp.fd = -1;
}

static void before_fork(void) {
  for (int kind = 0; kind < CP_KINDS; kind++)
    if (cp_backends[kind]->before_fork) cp_backends[kind]->before_fork();
}

static void after_fork(bool child) {
  for (int kind = 0; kind < CP_KINDS; kind++)
    if (cp_backends[kind]->after_fork) cp_backends[kind]->after_fork(child);
}

static void in_child(void) {
  for (int kind = 0; kind < CP_KINDS; kind++)
    if (cp_backends[kind]->in_child) cp_backends[kind]->in_child();
}

static pid_t libc_fork(void) {
  static pid_t (*next)(void);
  if (!next) next = (pid_t (*)(void))dlsym(RTLD_NEXT, "fork");
  return next();
}

static pid_t next_fork(void) {
  before_fork();
  cp_join_before_fork();
  pid_t pid = libc_fork();
  cp_join_after_fork(pid == 0);
  after_fork(pid == 0);
  if (pid == 0) cp_handoff_forked();
  return pid;
}

/* Another thread may attach meanwhile: the seat is the parent's. */
static pid_t fork_unattached(void) {
  pid_t pid = next_fork();
  if (pid) return pid;
  cp_store(&cp.attached, 0);
  cp_look_in_child();
  return 0;
}

static pid_t fork_process(void) {
  if (!cp_load(&cp.attached)) return fork_unattached();
  if (cp.child) {
    if (round_) cp_child_trap(); /* the parent may not know of a grandchild */
    return next_fork();
  }
  cp_acquire(&cp.grow_lock);
  cp_acquire(&cp.pool_lock);
  cp_acquire(&cp.gate_lock);
  if (cp_fork_pending() && child_count == MOST_CHILDREN) cp_fork_settle();
  bool kept = begin_round();
  pid_t pid = next_fork();
  if (pid == 0) {
    become_child();
    return 0;
  }
  if (kept && pid > 0) children[child_count++] = pid;
  if (kept && pid < 0 && !child_count) end_round(GONE);
  cp_release(&cp.gate_lock);
  cp_release(&cp.pool_lock);
  cp_release(&cp.grow_lock);
  return pid;
}

/* A handler of the child must not run before the child's state is whole. */
CP_EXPORT pid_t fork(void) {
  if (CP_UNLIKELY(cp_libc_is_foreign())) return libc_fork();
  cp_section_begin();
  pid_t pid = fork_process();
  if (pid == 0) {
    in_child();
    cp_signals_forked();
    cp_section_forked();
  } else {
    cp_section_end();
  }
  return pid;
}
