/* A process that waits for its daemon ends when nobody is left who could answer, and not before: a daemon that was killed
 * comes back. */
#pragma GCC diagnostic ignored "-Wunused-function" /* what others need of it */
#include "base/common.h"

/* A thread that waits looks ten times per second here, and counts. */
static uint32_t *waits;
static int64_t next_look_us(void) {
  cp_add(waits, 1);
  return 100000;
}
#define CHANNEL_LOOK_US next_look_us()

#include "tests/job.h"

static void waits_for_its_turn(void) { block[0]++; }
static void waits_for_memory(void) { cp_grow(0, 2 * CP_GIB, false); }

static void waits_for_the_end_of_a_pause(void) {
  cp_store(&cp.seat->turn, 1);
  ask_yield(CP_YIELD_PAUSE);
  block[0]++;
}

/* Another file has the channel's number now, and its other end is closed. */
static void waits_with_another_file(void) {
  int other[2];
  CHECK_THAT(!socketpair(AF_UNIX, SOCK_SEQPACKET, 0, other) && dup2(other[0], cp.fd) == cp.fd);
  close(other[0]);
  close(other[1]);
  block[0]++;
}

/* The job's own end is the only one that it has. */
static pid_t start(void (*does)(void), int errors) {
  pid_t pid = fork();
  if (pid) return pid;
  close(daemon_fd);
  dup2(errors, STDERR_FILENO);
  alarm(60);
  does();
  _exit(0);
}

static void set_up(void) {
  attach();
  note_channel(cp.fd);
  block = cp_pool_alloc(&cp.arenas.win[0].pool, CP_CHUNK, CP_GIB, 0, &(size_t){0});
}

static void ends(void (*does)(void)) {
  char text[512] = "";
  int status, errors[2];
  CHECK_THAT(!pipe(errors));
  set_up();
  pid_t job = start(does, errors[1]);
  close(errors[1]);
  close(cp.fd);
  close(daemon_fd);
  CHECK_THAT(waitpid(job, &status, 0) == job && WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
  CHECK_THAT(read(errors[0], text, sizeof text - 1) > 0 && strstr(text, "the job has ended through whose channel"));
  close(errors[0]);
}

/* The daemon is gone; the shim has the channel, and gives it to the next daemon, which grants the turn. */
static void waits_on(void (*does)(void), bool shim) {
  int status;
  set_up();
  uint32_t before = cp_load(waits);
  pid_t job = start(does, STDERR_FILENO);
  close(cp.fd);
  if (!shim) close(daemon_fd);
  for (uint64_t end = cp_now_us() + 40000000; cp_load(waits) < before + 4; pause_us(1000)) CHECK_THAT(cp_now_us() < end);
  CHECK_THAT(!waitpid(job, &status, WNOHANG));
  give();
  cp_futex_wake(&cp.seat->turn);
  CHECK_THAT(waitpid(job, &status, 0) == job && !status);
  if (shim) close(daemon_fd);
}

int main(void) {
  no_helper = true;
  waits = mmap(NULL, sizeof *waits, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK_THAT(waits != MAP_FAILED);
  ends(waits_for_its_turn);
  ends(waits_for_memory);
  ends(waits_for_the_end_of_a_pause);
  waits_on(waits_for_its_turn, true);
  waits_on(waits_with_another_file, false);
  return 0;
}
