/* A job with the gate on the stub driver, and a stand-in for the daemon in the same process. */
#include "tests/check.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "cuda/gate.h"
#include "tests/packet.h"

#define OK(call) CHECK_THAT((call) == CUDA_SUCCESS)
#define SLOTS 8
/* However long a thread has to wait for a processor. */
#define NEVER_IDLE_US 60000000u

/* In the library these stand before libc's. */
void *cp_next_dlsym(void *handle, const char *name) { return dlsym(handle, name); }
void *cp_meant_by(const void *address, const char *name) { return (void)address, dlsym(RTLD_DEFAULT, name); }
int cp_signals_start(void) { return 0; }
void cp_signals_forked(void) {}

int cp_attach(int fd);
void cp_step_begin(int optimizer, int first);
int cp_step_end(int optimizer, int first);

static uint32_t whole __attribute__((unused)) = 1; /* jobs have their memory from the driver */
static uint32_t close_lane __attribute__((unused)); /* between turns */
static int seat_table_fd, daemon_fd;
static char *seat_table;
static CUcontext context;
static CUfunction spin, mix;

static inline struct cp_seat *seat_of(uint32_t slot) { return (struct cp_seat *)(seat_table + CP_BOARD_HEADER) + slot; }

/* ---- the daemon's part --------------------------------------------------------------------------------------------- */

static inline void make_seat_table(void) {
  seat_table_fd = memfd_create("board", 0);
  size_t bytes = CP_BOARD_HEADER + CP_SEATS * sizeof(struct cp_seat);
  CHECK_THAT(!ftruncate(seat_table_fd, (off_t)bytes));
  seat_table = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, seat_table_fd, 0);
  *(struct cp_board_header *)seat_table = (struct cp_board_header){CP_BOARD_MAGIC, CP_PROTOCOL, CP_KIND_CUDA};
  for (uint32_t i = 0; i < SLOTS; i++) {
    struct cp_seat *s = seat_of(i);
    s->grace_us = NEVER_IDLE_US, s->whole = whole, s->close_lane = close_lane;
  }
}

static inline void send_setup(int fd, uint32_t slot, uint64_t capacity) {
  send_packet(fd, (struct cp_packet){.type = CP_SETUP, .a = slot, .b = CP_GIB, .d = capacity}, seat_table_fd);
}

/* The next packet of this type; others before it are skipped. */
static inline struct cp_packet packet(uint32_t type) {
  struct cp_packet p;
  do CHECK_THAT(recv(daemon_fd, &p, sizeof p, 0) == sizeof p);
  while (p.type != type);
  return p;
}

static inline void give_to(uint32_t slot) {
  struct cp_seat *s = seat_of(slot);
  cp_store(&s->turn_start_us, cp_now_us());
  cp_store(&s->turn, 1);
  cp_futex_wake(&s->turn);
  cp_notify(s);
}
static inline void give(void) { give_to(0); }

static inline void ask(uint32_t yield) {
  struct cp_seat *s = seat_of(0);
  if (yield == CP_YIELD_PAUSE) cp_store(&s->pause_seq, s->pause_seq + 1);
  cp_store(&s->yield, yield);
  cp_futex_wake(&s->yield);
  cp_notify(s);
}

static inline void watch_it(void) {
  cp_store(&seat_of(0)->watch, 1);
  cp_notify(seat_of(0));
}

/* ---- the job's part ---------------------------------------------------------------------------------------------------- */

static inline void use_device(void) {
  CUmodule module;
  OK(cuInit(0));
  OK(cuDevicePrimaryCtxRetain(&context, 0));
  OK(cuCtxSetCurrent(context));
  OK(cuModuleLoadData(&module, "stub"));
  OK(cuModuleGetFunction(&spin, module, "spin_us"));
  OK(cuModuleGetFunction(&mix, module, "mix_u64"));
}

static inline void attach_to(int pair[2], uint32_t slot) {
  send_setup(pair[1], slot, 256 * CP_MIB);
  CHECK_THAT(cp_attach(pair[0]) == 0);
}

static inline void begin(void) {
  int pair[2];
  struct timeval patience = {20, 0};
  make_seat_table();
  CHECK_THAT(!socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair));
  CHECK_THAT(!setsockopt(pair[1], SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience));
  daemon_fd = pair[1];
  use_device();
  attach_to(pair, 0);
}

static inline void spin_on(CUstream stream, uint64_t us) {
  OK(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, (void *[]){&us}, NULL));
}

/* A flag that the device sets when it comes there. */
static inline void set_flag(void *flag) { cp_store((uint32_t *)flag, 1); }
static inline void flag_on(CUstream stream, uint32_t *flag) { OK(cuLaunchHostFunc(stream, set_flag, flag)); }

/* The device stops there until it is told. */
static inline void wait_for_flag(void *flag) {
  while (!cp_load((uint32_t *)flag)) syscall(SYS_nanosleep, &(struct timespec){.tv_nsec = 500000}, NULL);
}
static inline void hold_on(CUstream stream, uint32_t *flag) { OK(cuLaunchHostFunc(stream, wait_for_flag, flag)); }

static inline CUstream new_stream(unsigned int flags) {
  CUstream stream;
  OK(cuStreamCreate(&stream, flags));
  return stream;
}

/* Of an iteration that took so long that the device has all the time that it may need to end.  As cp_step_end. */
static inline int end_long_step(void) {
  cp.boundary.step_us = cp_now_us() - 4000000;
  return cp_step_end(0, 0);
}

static inline bool soon(uint32_t *flag) {
  for (uint64_t end = cp_now_us() + 10000000; cp_now_us() < end;) {
    if (cp_load(flag)) return true;
    syscall(SYS_nanosleep, &(struct timespec){.tv_nsec = 200000}, NULL);
  }
  return false;
}

static inline pthread_t start(void *(*function)(void *), void *argument) {
  pthread_t thread;
  CHECK_THAT(!pthread_create(&thread, NULL, function, argument));
  return thread;
}

/* ---- cases, each in a process of its own ------------------------------------------------------------------------------ */

static uint32_t first_flag __attribute__((unused)), second_flag __attribute__((unused));

static inline void released(uint64_t cause) {
  struct cp_packet p = packet(CP_RELEASED);
  CHECK_THAT(p.a == cause && seat_of(0)->turn == 0 && seat_of(0)->cause == cause);
}

static inline void *launch_one(void *flag) {
  OK(cuCtxSetCurrent(context));
  spin_on(NULL, 10);
  flag_on(NULL, flag);
  return NULL;
}

struct test_case {
  const char *name;
  void (*run)(void);
};
#define CASE(function) {#function, function}

/* Returns the exit status.  An argument names the only case to run. */
static inline int run_cases(const struct test_case *cases, size_t count, int argc, char **argv) {
  int failures = 0;
  for (size_t i = 0; i < count; i++) {
    if (argc > 1 && strcmp(argv[1], cases[i].name) != 0) continue;
    int status = 0;
    pid_t pid = fork();
    if (pid == 0) {
      alarm(40);
      cases[i].run();
      _exit(0);
    }
    CHECK_THAT(pid > 0 && waitpid(pid, &status, 0) == pid);
    if (status) fprintf(stderr, "%s failed: status %x\n", cases[i].name, (unsigned)status), failures++;
  }
  return failures != 0;
}
