/* Forked children of a process of a job: those that come to use the device attach for themselves, over the job's
 * attach socket. */
#include "tests/cuda/job.h"

#include <poll.h>
#include <sys/stat.h>
#include <sys/un.h>

void cp_watch_forks(void);

#define PIECE (3 * CP_MIB)

/* Written by the child, and by its device. */
struct shared {
  uint32_t went, allocated, refused;
};
static struct shared *shared;
static int listener;
static char home[] = "/tmp/carpool-forks-XXXXXX";

/* ---- the shim's part, and the daemon's ------------------------------------------------------------------------------ */

static void path_of(char *path, size_t size, const char *name) { snprintf(path, size, "%s/%s", home, name); }

static void make_attach_socket(void) {
  char path[80];
  CHECK_THAT(mkdtemp(home));
  path_of(path, sizeof path, "jobs");
  CHECK_THAT(!mkdir(path, 0700));
  path_of(path, sizeof path, "jobs/7");
  CHECK_THAT(!mkdir(path, 0700));
  struct sockaddr_un at = {.sun_family = AF_UNIX};
  path_of(at.sun_path, sizeof at.sun_path, "jobs/7/door");
  listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  CHECK_THAT(!bind(listener, (struct sockaddr *)&at, sizeof at) && !listen(listener, 8));
  setenv("CARPOOL_HOME", home, 1);
  setenv("CARPOOL_JOB", "7", 1);
}

static void remove_attach_socket(void) {
  static const char *const names[] = {"jobs/7/door", "jobs/7", "jobs", ""};
  char path[80];
  for (uint32_t i = 0; i < 4; i++) {
    path_of(path, sizeof path, names[i]);
    remove(path);
  }
}

static bool somebody_knocks(int patience_ms) {
  struct pollfd p = {.fd = listener, .events = POLLIN};
  return poll(&p, 1, patience_ms) == 1;
}

/* Lets a process in.  It waits for an answer then. */
static void let_in(void) {
  struct timeval patience = {10, 0};
  CHECK_THAT(somebody_knocks(10000));
  daemon_fd = accept(listener, NULL, NULL);
  CHECK_THAT(!setsockopt(daemon_fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience));
  struct cp_packet hello = packet(CP_HELLO);
  CHECK_THAT(hello.a == CP_PROTOCOL && hello.b == 1);
}

static void seat_companion(uint32_t slot) {
  let_in();
  send_setup(daemon_fd, slot, 256 * CP_MIB);
}

static void refuse(int fd) { send_packet(fd, (struct cp_packet){.type = CP_REFUSED, .a = 1, .b = CP_KIND_CUDA}, -1); }

/* ---- the job's part ---------------------------------------------------------------------------------------------------- */

static void prepare(void) {
  make_seat_table();
  make_attach_socket();
  shared = mmap(NULL, CP_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}

static void attach_parent(void) {
  int pair[2];
  CHECK_THAT(!socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair));
  attach_to(pair, 0);
}

static void launch(void) {
  launch_one(&shared->went);
  OK(cuCtxSynchronize());
}

static _Noreturn void compute(void) {
  CUdeviceptr piece;
  use_device();
  OK(cuMemAlloc_v2(&piece, PIECE));
  cp_store(&shared->allocated, 1);
  launch();
  _exit(0);
}

static _Noreturn void be_refused(void) {
  if (cuInit(0) != CUDA_SUCCESS && cuMemAlloc_v2(&(CUdeviceptr){0}, PIECE) != CUDA_SUCCESS) cp_store(&shared->refused, 1);
  _exit(0);
}

static pid_t child(void (*body)(void)) {
  pid_t pid = fork();
  CHECK_THAT(pid >= 0);
  if (pid == 0) body();
  return pid;
}

static void ends_well(pid_t pid) {
  int status;
  CHECK_THAT(waitpid(pid, &status, 0) == pid && status == 0);
}

static void in_child(void (*body)(void)) { ends_well(child(body)); }

/* It counts its memory, and computes in its turns only. */
static void is_gated(uint32_t slot) {
  struct cp_seat *s = seat_of(slot);
  CHECK_THAT(soon(&shared->allocated) && s->p_live == PIECE && s->pid != (uint32_t)getpid());
  packet(CP_WANT);
  CHECK_THAT(cp_load(&s->want) && !cp_load(&shared->went));
  give_to(slot);
  CHECK_THAT(soon(&shared->went) && cp_load(&s->traits) & CP_TRAIT_DEVICE);
}

static void nobody_asked(void) {
  CHECK_THAT(!somebody_knocks(0));
  remove_attach_socket();
}

/* ---- cases ------------------------------------------------------------------------------------------------------------- */

static void forked_before(void) {
  prepare();
  attach_parent();
  pid_t pid = child(compute);
  seat_companion(1);
  is_gated(1);
  CHECK_THAT(seat_of(1)->pid == (uint32_t)pid && seat_of(0)->pid == (uint32_t)getpid());
  ends_well(pid);
  CHECK_THAT(!seat_of(0)->turns && seat_of(1)->turns == 1);
  nobody_asked();
}

static void parent_goes_on(void) {
  prepare();
  attach_parent();
  pid_t pid = child(compute);
  seat_companion(1);
  is_gated(1);
  ends_well(pid);
  use_device(); /* it has its own seat */
  pthread_t thread = start(launch_one, &first_flag);
  while (!cp_load(&seat_of(0)->want)) sched_yield();
  CHECK_THAT(!cp_load(&first_flag));
  give_to(0);
  CHECK_THAT(soon(&first_flag) && !pthread_join(thread, NULL));
  nobody_asked();
}

/* It has no seat, and asks with its own first use. */
static void parent_pending(void) {
  int pair[2];
  prepare();
  CHECK_THAT(!socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair));
  refuse(pair[1]);
  CHECK_THAT(cp_attach(pair[0]) == CP_LATER);
  pid_t pid = child(compute);
  seat_companion(1);
  is_gated(1);
  ends_well(pid);
  CHECK_THAT(cp_load(&cp.pending) && cp.fd == pair[0]);
  nobody_asked();
}

static void of_a_server(void) {
  prepare();
  setenv("CARPOOL_CUDA_DEVICE", "0", 1);
  cp_watch_forks();
  pid_t pid = child(compute);
  seat_companion(1);
  is_gated(1);
  ends_well(pid);
  nobody_asked();
}

static void forked_after(void) {
  prepare();
  use_device();
  attach_parent();
  in_child(be_refused);
  CHECK_THAT(cp_load(&shared->refused));
  nobody_asked();
}

static _Noreturn void load_data(void) { _exit(0); }
static _Noreturn void look_only(void) {
  int count;
  OK(cuInit(0));
  OK(cuDeviceGetCount(&count));
  _exit(0);
}

static void without_use(void) {
  prepare();
  attach_parent();
  in_child(load_data);
  in_child(look_only);
  nobody_asked();
}

static _Noreturn void fork_and_compute(void) {
  in_child(compute);
  _exit(0);
}

static void grandchild(void) {
  prepare();
  attach_parent();
  pid_t pid = child(fork_and_compute);
  seat_companion(1);
  is_gated(1);
  CHECK_THAT(seat_of(1)->pid != (uint32_t)pid);
  ends_well(pid);
  nobody_asked();
}

static _Noreturn void compute_and_fork(void) {
  use_device();
  launch();
  in_child(be_refused);
  _exit(0);
}

static void grandchild_of_a_user(void) {
  prepare();
  attach_parent();
  pid_t pid = child(compute_and_fork);
  seat_companion(1);
  packet(CP_WANT);
  give_to(1);
  ends_well(pid);
  CHECK_THAT(cp_load(&shared->went) && cp_load(&shared->refused));
  nobody_asked();
}

/* As a process that has just been started: it goes on, and says so. */
static void nobody_opens(void) {
  prepare();
  attach_parent();
  remove_attach_socket();
  in_child(compute);
  CHECK_THAT(cp_load(&shared->went));
}

static _Noreturn void compute_without_channel(void) {
  use_device();
  launch();
  CHECK_THAT(cp.fd == -1 && !cp_load(&cp.pending));
  _exit(0);
}

static void refused(void) {
  prepare();
  attach_parent();
  pid_t pid = child(compute_without_channel);
  let_in();
  refuse(daemon_fd);
  ends_well(pid);
  CHECK_THAT(cp_load(&shared->went));
  nobody_asked();
}

/* It finds the driver as its parent did. */
static void parent_past_the_gate(void) {
  prepare();
  attach_parent();
  cp_traits(CP_TRAIT_UNGATED | CP_TRAIT_SHARED);
  pid_t pid = child(compute);
  seat_companion(1);
  packet(CP_WANT);
  CHECK_THAT((cp_load(&seat_of(1)->traits) & (CP_TRAIT_UNGATED | CP_TRAIT_SHARED)) == CP_TRAIT_UNGATED);
  give_to(1);
  ends_well(pid);
  nobody_asked();
}

/* Whoever has opened goes away without an answer. */
static void nobody_answers(void) {
  prepare();
  attach_parent();
  pid_t pid = child(compute);
  let_in();
  close(daemon_fd);
  ends_well(pid);
  CHECK_THAT(cp_load(&shared->went));
  nobody_asked();
}

static _Noreturn void compute_without(void) {
  setenv("CARPOOL_DISABLE", "1", 1);
  compute();
}

static void turned_off(void) {
  prepare();
  attach_parent();
  in_child(compute_without);
  CHECK_THAT(cp_load(&shared->went));
  nobody_asked();
}

int main(int argc, char **argv) {
  static const struct test_case cases[] = {
      CASE(forked_before), CASE(parent_goes_on),       CASE(parent_pending), CASE(of_a_server),    CASE(forked_after), CASE(without_use),
      CASE(grandchild),    CASE(grandchild_of_a_user), CASE(nobody_opens),   CASE(nobody_answers), CASE(turned_off),
      CASE(refused),       CASE(parent_past_the_gate)};
#ifdef __SANITIZE_ADDRESS__
  (void)cases, (void)argc, (void)argv;
  puts("skipped: the sanitizer's allocator may be locked by another thread of the parent, and stays so in a forked child");
  return 77;
#endif
  return run_cases(cases, sizeof cases / sizeof *cases, argc, argv);
}
