/* Hand-over of a turn between two jobs on the stub driver, each of which always has work: from the last thing that one has
 * on the device to the first of the other.  In the same run, in turns: two processes without Carpool that wait for their
 * stream, pass a word on and launch.  Needs libcarpool preloaded.  Arguments: hand-overs, and streams that each job has
 * besides and used once.  Prints JSON: microseconds, and how many streams were asked about for each hand-over.
 *
 * The daemon's part, to name who waits, is done by the parent; it happens ahead of time. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include "bench/seat_table.h"

#define MOST 40000
#define PASSES 3
#define KERNEL_US 20

struct shared {
  uint64_t end_ns; /* when the last kernel had ended */
  uint32_t of;     /* whose that was */
  uint32_t word[2], ready;
  uint32_t counts[2], queries;
  double us[2][MOST]; /* without Carpool, with it */
};
static struct shared *sh;
static uint32_t me, kind;
static int side_streams;
static struct seat_table seat_table;

static uint64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
static uint32_t load(uint32_t *p) { return __atomic_load_n(p, __ATOMIC_SEQ_CST); }
static void store(uint32_t *p, uint32_t v) { __atomic_store_n(p, v, __ATOMIC_SEQ_CST); }
static void futex(uint32_t *word, int operation, uint32_t value) {
  syscall(SYS_futex, word, operation, value, NULL, NULL, 0);
}
static void wait_for(uint32_t *word, uint32_t value) {
  for (uint32_t seen; (seen = load(word)) != value;) futex(word, FUTEX_WAIT, seen);
}
static void tell(uint32_t *word, uint32_t value) {
  store(word, value);
  futex(word, FUTEX_WAKE, 2);
}

/* Both run on the device. */
static void first(void *unused) {
  (void)unused;
  if (sh->end_ns && sh->of != me && sh->counts[kind] < MOST)
    sh->us[kind][sh->counts[kind]++] = (double)(now_ns() - sh->end_ns) / 1e3;
}
static void last(void *unused) {
  (void)unused;
  sh->of = me;
  sh->end_ns = now_ns();
}

struct device {
  __typeof__(cuLaunchKernel) *launch;
  __typeof__(cuLaunchHostFunc) *host;
  __typeof__(cuStreamSynchronize) *wait;
  __typeof__(cuStreamCreate) *stream;
  unsigned long (*calls)(const char *);
  CUfunction spin;
};

static struct device use_device(void) {
  CUmodule module;
  void *driver = start_driver(&module);
  struct device d = {CALL(driver, cuLaunchKernel), CALL(driver, cuLaunchHostFunc), CALL(driver, cuStreamSynchronize),
                     CALL(driver, cuStreamCreate), NULL, NULL};
  *(void **)&d.calls = dlsym(driver, "stub_calls");
  NEED(!CALL(driver, cuModuleGetFunction)(&d.spin, module, "spin_us"));
  return d;
}

static void spin_on(const struct device *d, CUstream stream, uint64_t us) {
  NEED(!d->launch(d->spin, 1, 1, 1, 1, 1, 1, 0, stream, (void *[]){&us}, NULL));
}

static void work(const struct device *d) {
  NEED(!d->host(NULL, first, NULL));
  spin_on(d, NULL, KERNEL_US);
  NEED(!d->host(NULL, last, NULL));
}

static void meet(void) {
  __atomic_add_fetch(&sh->ready, 1, __ATOMIC_SEQ_CST);
  futex(&sh->ready, FUTEX_WAKE, 2);
  wait_for(&sh->ready, 2);
}

/* So many hand-overs, half of them by each side. */
static void bare_side(int rounds) {
  setenv("CARPOOL_DISABLE", "1", 1);
  struct device d = use_device();
  meet();
  for (int i = 0; i < rounds / 2; i++) {
    wait_for(&sh->word[me], 1);
    store(&sh->word[me], 0);
    work(&d);
    NEED(!d.wait(NULL));
    tell(&sh->word[1 - me], 1);
  }
  _exit(0);
}

static void use_streams(const struct device *d) {
  for (int i = 0; i < side_streams; i++) {
    CUstream stream;
    NEED(!d->stream(&stream, CU_STREAM_NON_BLOCKING));
    spin_on(d, stream, 0);
  }
}

/* Until there have been so many hand-overs in all. */
static void job_side(int rounds, int pair[2]) {
  int (*step_end)(int, int);
  void (*live_blocks)(const uint64_t *, const uint64_t *, uint64_t);
  *(void **)&step_end = dlsym(RTLD_DEFAULT, "cp_step_end");
  *(void **)&live_blocks = dlsym(RTLD_DEFAULT, "cp_live_blocks");
  NEED(step_end && live_blocks);
  struct device d = use_device();
  attach_to(seat_table, me, pair);
  close(pair[1]);
  meet();
  use_streams(&d);
  unsigned long before = d.calls("cuStreamQuery");
  for (int i = 0; load(&sh->counts[1]) < (uint32_t)rounds; i++) { /* a turn may last for several iterations */
    work(&d);
    NEED(!d.wait(NULL));
    if (step_end(0, i == 0)) live_blocks(NULL, NULL, 0);
  }
  __atomic_add_fetch(&sh->queries, (uint32_t)(d.calls("cuStreamQuery") - before), __ATOMIC_SEQ_CST);
  _exit(0);
}

/* ---- the daemon's part --------------------------------------------------------------------------------------------- */

static uint64_t passed[2];
static int holder;
static bool waits[2];

static void notify(struct cp_seat *s) {
  __atomic_add_fetch(&s->bell, 1, __ATOMIC_SEQ_CST);
  futex(&s->bell, FUTEX_WAKE, 8);
}

static void follow(void) {
  for (struct cp_seat *s; holder >= 0;) {
    s = seat_at(seat_table, (uint32_t)holder);
    if (__atomic_load_n(&s->passed_seq, __ATOMIC_SEQ_CST) == passed[holder]) return;
    passed[holder]++;
    uint32_t next = load(&s->passed_to);
    holder = next ? (int)next - 1 : -1;
    if (next) waits[next - 1] = false;
  }
}

static void give(int slot) {
  struct cp_seat *s = seat_at(seat_table, (uint32_t)slot);
  waits[slot] = false;
  holder = slot;
  s->turn_start_us = now_ns() / 1000;
  tell(&s->turn, 1);
  notify(s);
}

static void arrange(const bool *alive) {
  for (int i = 0; i < 2 && holder < 0; i++)
    if (waits[i] && alive[i]) give(i);
  if (holder < 0 || !waits[1 - holder] || !alive[1 - holder]) return;
  struct cp_seat *s = seat_at(seat_table, (uint32_t)holder);
  store(&s->successor, (uint32_t)(1 - holder) + 1);
  if (__atomic_load_n(&s->passed_seq, __ATOMIC_SEQ_CST) != passed[holder]) { /* it may have let go before it saw the name */
    store(&s->successor, 0);
    return;
  }
  if (load(&s->yield)) return;
  store(&s->yield, CP_YIELD_BOUNDARY);
  notify(s);
}

static void serve(int fds[2]) {
  bool alive[2] = {true, true};
  while (alive[0] || alive[1]) {
    struct pollfd looks[2] = {{fds[0], POLLIN, 0}, {fds[1], POLLIN, 0}};
    for (int i = 0; i < 2; i++)
      if (!alive[i]) looks[i].fd = -1;
    poll(looks, 2, 1);
    for (int i = 0; i < 2; i++) {
      struct cp_packet p;
      ssize_t n = alive[i] ? recv(fds[i], &p, sizeof p, MSG_DONTWAIT) : -1;
      follow();
      if (alive[i] && (n == 0 || (n < 0 && errno == ECONNRESET))) alive[i] = false;
      if (n > 0 && p.type == CP_WANT && holder != i) waits[i] = true;
    }
    if (holder >= 0 && !alive[holder]) holder = -1;
    arrange(alive);
  }
}

/* ---- one pass ---------------------------------------------------------------------------------------------------------- */

static void both(uint32_t which, int rounds) {
  int fds[2];
  pid_t pid[2];
  kind = which;
  sh->end_ns = 0;
  sh->ready = 0;
  sh->word[0] = 1, sh->word[1] = 0;
  holder = -1;
  memset(passed, 0, sizeof passed);
  memset(waits, 0, sizeof waits);
  for (uint32_t i = 0; i < 2; i++) {
    int pair[2];
    NEED(!socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair));
    memset(seat_at(seat_table, i), 0, sizeof(struct cp_seat));
    seat_at(seat_table, i)->grace_us = 200000;
    seat_at(seat_table, i)->whole = 1; /* memory is the driver's: nothing to bring */
    NEED((pid[i] = fork()) >= 0);
    if (pid[i] == 0) {
      me = i;
      if (i) close(fds[0]); /* the other's channel ends with the other */
      kind ? job_side(rounds, pair) : bare_side(rounds);
    }
    close(pair[0]);
    fds[i] = pair[1];
  }
  if (kind) serve(fds);
  for (int i = 0; i < 2; i++) {
    int status;
    NEED(waitpid(pid[i], &status, 0) == pid[i] && status == 0);
    close(fds[i]);
  }
}

static int ascending(const void *x, const void *y) {
  double d = *(const double *)x - *(const double *)y;
  return (d > 0) - (d < 0);
}

static void report(const char *name, uint32_t which, const char *end) {
  uint32_t n = sh->counts[which];
  NEED(n > 0);
  qsort(sh->us[which], n, sizeof(double), ascending);
  printf("\"%s\": {\"n\": %u, \"p50_us\": %.2f, \"p99_us\": %.2f}%s", name, n, sh->us[which][n / 2],
         sh->us[which][(size_t)n * 99 / 100], end);
}

int main(int argc, char **argv) {
  int rounds = argc > 1 ? atoi(argv[1]) : 3000;
  side_streams = argc > 2 ? atoi(argv[2]) : 0;
  alarm(280);
  seat_table = make_seat_table();
  sh = mmap(NULL, sizeof *sh, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  NEED(sh != MAP_FAILED && rounds >= 2 * PASSES && rounds < MOST);
  for (int pass = 0; pass < PASSES; pass++)
    for (uint32_t which = 0; which < 2; which++) both(which, which ? rounds * (pass + 1) / PASSES : rounds / PASSES);
  printf("{");
  report("bare", 0, ", ");
  report("hand_over", 1, ", ");
  printf("\"queries\": %.2f}\n", (double)sh->queries / sh->counts[1]);
  return 0;
}
