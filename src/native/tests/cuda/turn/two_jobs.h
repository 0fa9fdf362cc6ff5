/* Two jobs in processes of their own hand the turn to each other; the daemon's part is only to say who waits. */
#include "tests/cuda/job.h"

struct shared {
  uint32_t both, ended[2], ready;
};
static struct shared *shared;
static uint32_t me;

/* On the device. */
static void check_alone(void *unused) {
  (void)unused;
  if (cp_load(&seat_of(1 - me)->turn) || !cp_load(&seat_of(me)->turn)) cp_store(&shared->both, 1);
}

/* So often each has the turn at least. */
#define TURNS 5
/* The rest of a job's life, once it has its seat; ends with finish(). */
typedef void job_body(bool for_ever);
/* What the daemon does about a packet that has nothing to do with turns. */
static void (*serve_job)(uint32_t slot, int channel, const struct cp_packet *p);

static uint64_t passed[2];
static int holder; /* -1: nobody */
static bool waits[2];

/* Seats are the truth, packets are hints. */
static void follow(void) {
  while (holder >= 0 && cp_load(&seat_of((uint32_t)holder)->passed_seq) != passed[holder]) {
    passed[holder]++;
    uint32_t next = cp_load(&seat_of((uint32_t)holder)->passed_to);
    holder = next ? (int)next - 1 : -1;
    if (next) waits[next - 1] = false;
  }
}

static void arrange(const bool *alive) {
  for (uint32_t i = 0; i < 2 && holder < 0; i++) {
    if (!waits[i] || !alive[i]) continue;
    waits[i] = false;
    holder = (int)i;
    give_to(i);
  }
  if (holder < 0 || !waits[1 - holder] || !alive[1 - holder]) return;
  struct cp_seat *s = seat_of((uint32_t)holder);
  cp_store(&s->successor, (uint32_t)(1 - holder) + 1);
  if (cp_load(&s->passed_seq) != passed[holder]) { /* it has let go, perhaps before it could see the name */
    cp_store(&s->successor, 0);
    return;
  }
  if (cp_load(&s->yield)) return;
  cp_store(&s->yield, CP_YIELD_BOUNDARY);
  cp_notify(s);
}

static void serve(int fds[2], bool alive[2]) {
  for (uint32_t i = 0; i < 2; i++) {
    struct cp_packet p;
    if (!alive[i]) continue;
    ssize_t n = recv(fds[i], &p, sizeof p, MSG_DONTWAIT);
    follow();
    if (n == 0 || (n < 0 && errno == ECONNRESET)) alive[i] = false;
    if (n > 0 && p.type == CP_WANT && holder != (int)i) waits[i] = true;
    if (n > 0 && serve_job) serve_job(i, fds[i], &p);
  }
  if (holder >= 0 && !alive[holder]) { /* its process is gone, and what it had on the device with it */
    cp_store(&seat_of((uint32_t)holder)->turn, 0);
    holder = -1;
  }
  arrange(alive);
  syscall(SYS_nanosleep, &(struct timespec){.tv_nsec = 20000}, NULL);
}

/* Both have had what is to be tested; who is through before goes on, so that it does not depend on the processor. */
static bool enough(void) { return cp_load(&seat_of(0)->turns) >= TURNS && cp_load(&seat_of(1)->turns) >= TURNS; }

static void meet(void) {
  cp_add(&shared->ready, 1);
  cp_futex_wake(&shared->ready);
  while (cp_load(&shared->ready) < 2) cp_futex_wait(&shared->ready, 1, -1);
}

static void finish(void) {
  cp_store(&shared->ended[me], 2);
  _exit(0);
}

static pid_t launch(job_body *body, uint32_t slot, int *ours, bool for_ever) {
  int pair[2];
  memset(seat_of(slot), 0, sizeof(struct cp_seat));
  seat_of(slot)->grace_us = 200000;
  seat_of(slot)->whole = whole;
  CHECK_THAT(!socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair));
  pid_t pid = fork();
  CHECK_THAT(pid >= 0);
  if (pid == 0) {
    alarm(100);
    if (slot) close(ours[-1]); /* the other's channel ends with the other */
    me = slot;
    use_device();
    attach_to(pair, slot);
    close(pair[1]);
    body(for_ever);
  }
  close(pair[0]);
  *ours = pair[1];
  return pid;
}

/* kill_one: the first goes on for ever, and is killed in a turn when it has set its `ended`. */
static void both_run(job_body *body, bool kill_one) {
  int fds[2], status[2];
  bool alive[2] = {true, true};
  pid_t pid[2];
  holder = -1;
  memset(shared, 0, sizeof *shared);
  memset(passed, 0, sizeof passed);
  memset(waits, 0, sizeof waits);
  for (uint32_t i = 0; i < 2; i++) pid[i] = launch(body, i, &fds[i], kill_one && i == 0);
  while (alive[0] || alive[1]) {
    serve(fds, alive);
    if (kill_one && holder == 0 && cp_load(&shared->ended[0])) {
      CHECK_THAT(!kill(pid[0], SIGKILL));
      kill_one = false;
      status[0] = -1;
    }
  }
  for (int i = 0; i < 2; i++) CHECK_THAT(waitpid(pid[i], &status[i], 0) == pid[i]);
  CHECK_THAT(status[1] == 0 && !shared->both && shared->ended[1] == 2);
  CHECK_THAT(enough());
  printf("%lu and %lu turns\n", (unsigned long)seat_of(0)->turns, (unsigned long)seat_of(1)->turns);
  for (int i = 0; i < 2; i++) close(fds[i]);
}

static void prepare(void) {
  make_seat_table();
  shared = mmap(NULL, CP_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK_THAT(shared != MAP_FAILED);
}

/* What the stub's kernel makes of its words. */
static void mix_words(uint64_t *word, uint64_t count, uint64_t seed) {
  for (uint64_t i = 0; i < count; i++) {
    uint64_t x = (word[i] ^ seed) * 0x9e3779b97f4a7c15u + i;
    word[i] = x ^ x >> 29;
  }
}
