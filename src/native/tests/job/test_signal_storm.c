/* Thousands of signals per second, whose handlers touch arena memory (and some leave by siglongjmp), at random instants of
 * a job that touches, allocates, frees, forks, reads and writes while its turn and its memory come and go.  Seconds and seed
 * are arguments. */
#pragma GCC diagnostic ignored "-Wunused-function"
#pragma GCC diagnostic ignored "-Wshadow" /* the library is not made to be one file */
#ifndef __SANITIZE_ADDRESS__ /* which has its own */
#include "base/io_bounce.c"
#define find_next find_next_malloc
#include "job/malloc_hooks.c"
#undef find_next
#endif

#define WITH_FORK
#define on_fault on_fault_of_tests
#include "tests/job.h"
#undef on_fault
#include "job/signals.c"

#include <setjmp.h>

#define TIMERS 3
#define PIECES 3u /* chunks of the job */
#define BLOCK (64 * CP_KIB)
#define STUCK_US 15000000

bool cp_groups_trap(const void *address) { return (void)address, false; }

/* Outside of arenas: what the daemon, the handlers and the job count. */
static struct counts {
  uint64_t steps, handled, left, turns, forks, grown, children_failed;
} *counts;
static timer_t timers[TIMERS];
static uint64_t *notes; /* arena memory: each handler counts there, too */
static uint64_t noted_here[TIMERS], cut[TIMERS]; /* handlers that another one has left by its jump, maybe between both counts */
static volatile sig_atomic_t inside[TIMERS];
static sigjmp_buf away;
static volatile sig_atomic_t may_leave, ended;
static pid_t job;

/* ---- the daemon ------------------------------------------------------------------------------------------------------ */

static void grant_memory(const struct cp_packet *p) {
  cp_store(p->a ? &cp.seat->e_limit : &cp.seat->p_limit, p->b);
  cp_store(&cp.seat->grow_status, CP_GROW_GRANTED);
  cp_store(&cp.seat->grow_ack, (uint32_t)p->c);
  cp_futex_wake(&cp.seat->grow_ack);
  counts->grown++;
}

static void grant_turn(void) {
  if (!cp_load(&cp.seat->want) || cp_load(&cp.seat->turn)) return;
  cp_store(&cp.seat->e_limit, BLOCK); /* the rest has to be asked for again */
  give();
  cp_futex_wake(&cp.seat->turn);
  cp_notify(cp.seat);
  counts->turns++;
}

static void ask_for_something(void) {
  if (cp_load(&cp.seat->turn)) ask_yield(rand() % 2 ? CP_YIELD_NOW : CP_YIELD_BOUNDARY);
  if (cp_load(&cp.seat->turn) || rand() % 16) return;
  cp_store(&cp.seat->offload, CP_OFFLOAD_ASKED);
  cp_notify(cp.seat);
}

static void look_whether_it_goes_on(void) {
  static uint64_t steps, since;
  uint64_t now = cp_now_us();
  if (counts->steps != steps || !since) since = now;
  steps = counts->steps;
  if (now - since < STUCK_US) return;
  fprintf(stderr, "stuck after %lu steps, %lu handlers: gate %u, turn %u, want %u, locks %x %x %x\n", steps, counts->handled,
          cp.gate, cp.seat->turn, cp.seat->want, cp.grow_lock.word, cp.pool_lock.word, cp.gate_lock.word);
  _exit(1);
}

static void *play_daemon(void *unused) {
  struct timeval patience = {0, 1000}; /* or a tick of the kernel's */
  CHECK_THAT(!setsockopt(daemon_fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience));
  for (;;) {
    struct cp_packet p;
    bool heard = syscall(SYS_recvfrom, daemon_fd, &p, sizeof p, 0, NULL, NULL) == sizeof p;
    if (heard && (p.type == CP_WANT || p.type == CP_URGENT)) grant_turn();
    if (heard && p.type == CP_GROW) grant_memory(&p);
    if (heard && p.type == CP_OFFLOADED) cp_store(&cp.seat->offload, CP_OFFLOAD_NO);
    if (!heard || p.type == CP_GROW) ask_for_something();
    look_whether_it_goes_on();
  }
  return unused;
}

/* ---- handlers -------------------------------------------------------------------------------------------------------- */

static void arm(int i) {
  struct itimerspec soon = {.it_value.tv_nsec = 100000 + next_random() % 600000};
  if (timer_settime(timers[i], 0, &soon, NULL)) _exit(3);
}

static void check_block(size_t chunk) {
  const volatile uint64_t *p = block + chunk * CP_CHUNK / 8;
  for (size_t i = 0; i < 64; i += 8)
    if (p[i] != chunk * 1000003 + i) _exit(4);
}

/* Handlers that this one has interrupted go no further. */
static void jump_away(void) {
  counts->left++;
  for (int i = 0; i < TIMERS; i++) {
    if (inside[i]) arm(i);
    cut[i] += (uint64_t)inside[i];
    inside[i] = 0;
  }
  siglongjmp(away, 1);
}

static void on_timer(int sig, siginfo_t *info, void *context) {
  (void)sig, (void)context;
  int i = info->si_value.sival_int, saved = errno;
  if (getpid() != job) _exit(5); /* children have no timers */
  inside[i]++;
  check_block(next_random() % PIECES);
  notes[i * 1024]++;
  noted_here[i]++;
  counts->handled++;
  if (!ended) arm(i);
  errno = saved;
  inside[i]--;
  if (i == TIMERS - 1 && may_leave && next_random() % 4 == 0) jump_away();
}

/* One on a stack of its own, one that interrupts itself, one that leaves. */
static void start_timers(void) {
  static const int flags[TIMERS] = {SA_ONSTACK, SA_NODEFER | SA_RESTART, 0};
  for (int i = 0; i < TIMERS; i++) {
    struct sigaction a = {.sa_flags = SA_SIGINFO | flags[i]};
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN + i, .sigev_value.sival_int = i};
    a.sa_sigaction = on_timer;
    CHECK_THAT(!sigaction(SIGRTMIN + i, &a, NULL) && !timer_create(CLOCK_MONOTONIC, &event, &timers[i]));
  }
  for (int i = 0; i < TIMERS; i++) arm(i);
}

/* ---- the job --------------------------------------------------------------------------------------------------------- */

static void *allocate(size_t bytes) {
#ifndef __SANITIZE_ADDRESS__
  return cp_arena_alloc(bytes);
#else
  size_t need;
  cp_acquire(&cp.pool_lock);
  void *p = cp_pool_alloc(&cp.arenas.win[1].pool, bytes, CP_GIB, 0, &need);
  cp_release(&cp.pool_lock);
  return p;
#endif
}

static void give_back(void *p) {
#ifndef __SANITIZE_ADDRESS__
  cp_arena_free(p);
#else
  cp_acquire(&cp.pool_lock);
  cp_pool_free(&cp_arenas_window(&cp.arenas, p)->pool, p);
  cp_release(&cp.pool_lock);
#endif
}

/* Ephemeral content outlives the turns that end meanwhile. */
static void use_a_block(void) {
  volatile uint64_t *p = allocate(BLOCK * (1 + next_random() % 16));
  CHECK_THAT(p);
  uint64_t mark = next_random();
  for (size_t i = 0; i < BLOCK / 8; i += 512) p[i] = mark + i;
  for (size_t i = 0; i < BLOCK / 8; i += 512) CHECK_THAT(p[i] == mark + i);
  give_back((void *)(uintptr_t)p);
}

static void use_a_file(void) {
#ifndef __SANITIZE_ADDRESS__
  static char copy[CP_PAGE];
  static int file = -1;
  if (file < 0) file = memfd_create("file", 0);
  size_t chunk = next_random() % PIECES;
  CHECK_THAT(pwrite(file, block + chunk * CP_CHUNK / 8, CP_PAGE, 0) == (ssize_t)CP_PAGE);
  CHECK_THAT(pread(file, copy, CP_PAGE, 0) == (ssize_t)CP_PAGE);
  CHECK_THAT(!memcmp(copy, block + chunk * CP_CHUNK / 8, 8));
#endif
}

static void reap(void) {
  int status;
  for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;)
    if (status) counts->children_failed++;
}

static void use_a_child(void) {
  reap();
  pid_t pid = fork();
  CHECK_THAT(pid >= 0);
  if (pid) {
    counts->forks++;
    return;
  }
  if (next_random() % 2) check_block(next_random() % PIECES);
  _exit(0);
}

static void do_something(void) {
  unsigned choice = next_random() % 512;
  if (choice == 0)
    use_a_child();
  else if (choice < 30)
    use_a_file();
  else if (choice < 300)
    use_a_block();
  else
    check_block(next_random() % PIECES);
  if (choice < 4) cp_turn_end(CP_BY_BOUNDARY);
  counts->steps++;
}

/* However little of the processor this process gets. */
static bool enough(uint64_t seconds) { return counts->handled > 20 * seconds && counts->turns > 10 * seconds; }

static void work(uint64_t seconds) {
  static volatile uint64_t end; /* a jump keeps it */
  end = cp_now_us() + seconds * 1000000;
  sigsetjmp(away, 1);
  may_leave = 1;
  while (cp_now_us() < end || !enough(seconds)) do_something();
  may_leave = 0;
  ended = 1;
}

static void begin_storm(void) {
  static char stack[1 << 17];
  pthread_t thread;
  sigset_t all, old;
  stack_t own = {.ss_sp = stack, .ss_size = sizeof stack};
  counts = mmap(NULL, sizeof *counts, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  attach();
  cp.e_cap = CP_MIB;
  cp.p_cap = cp.seat->p_limit = cp.seat->e_limit = CP_GIB;
  block = cp_pool_alloc(&cp.arenas.win[0].pool, PIECES * CP_CHUNK, CP_GIB, 0, &(size_t){0});
  notes = cp_pool_alloc(&cp.arenas.win[0].pool, 3 * CP_PAGE * 2, CP_GIB, 0, &(size_t){0});
  give();
  for (size_t c = 0; c < PIECES; c++)
    for (size_t i = 0; i < 64; i += 8) block[c * CP_CHUNK / 8 + i] = c * 1000003 + i;
  CHECK_THAT(!cp_signals_start() && !sigaltstack(&own, NULL));
  job = getpid();
  sigfillset(&all);
  CHECK_THAT(!next_sigmask(SIG_SETMASK, &all, &old) && !pthread_create(&thread, NULL, play_daemon, NULL));
  CHECK_THAT(!next_sigmask(SIG_SETMASK, &old, NULL));
}

int main(int argc, char **argv) {
  uint64_t seconds = argc > 1 ? (uint64_t)atoi(argv[1]) : SHORT_OR_LONG(1, 3);
  srand(seed_ = argc > 2 ? (unsigned)atoi(argv[2]) : 1);
  begin_storm();
  start_timers();
  work(seconds);
  while (waitpid(-1, NULL, 0) > 0 || errno == EINTR) {}
  for (int i = 0; i < TIMERS; i++) CHECK_THAT(notes[i * 1024] - noted_here[i] <= cut[i]);
  for (size_t c = 0; c < PIECES; c++) check_block(c);
  printf("%lu steps, %lu handlers, %lu of them left, %lu turns, %lu forks, %lu grants of memory\n", counts->steps,
         counts->handled, counts->left, counts->turns, counts->forks, counts->grown);
  CHECK_THAT(!counts->children_failed);
  return 0;
}
