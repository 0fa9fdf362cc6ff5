/* What others ask, say or do while a job moves out: nothing is lost, nothing is believed too much, and a job never
 * computes in memory that is not its own. */
#include "base/process.h"

#include <fcntl.h>
#include <sys/resource.h>

#define FILE_TRIES 30

/* The daemon asks in the middle of a drop: when all of the store's memory has been given back, and nothing has been said. */
static uint32_t ask_in_the_drop;
static int test_fallocate(int fd, int mode, off_t at, off_t bytes) {
  int result = fallocate(fd, mode, at, bytes);
  if (fd == cp.arenas.host.fd && bytes == CP_WINDOWS * (off_t)CP_GIB && cp_load(&ask_in_the_drop)) {
    cp_store(&ask_in_the_drop, 0);
    cp_store(&cp.seat->offload, CP_OFFLOAD_ASKED);
    cp_notify(cp.seat);
  }
  return result;
}
#define fallocate test_fallocate

#include "tests/job.h"

#define ALL SHORT_OR_LONG(32, 96) /* chunks */
#define BALLAST (ALL - CHUNKS)

static void drop(void) {
  cp_store(&cp.seat->offload, CP_OFFLOAD_DROP);
  cp_notify(cp.seat);
}

/* The daemon asks while the helper thread is about to drop, in the middle of it, and when it has done it. */
static void ask_at_once(void) {
  drop();
  ask_out();
}
static void ask_meanwhile(void) {
  cp_store(&ask_in_the_drop, 1);
  drop();
}
static void ask_afterwards(void) {
  drop();
  for (uint64_t end = cp_now_us() + 20000000; cp_load(&cp.seat->offload) != CP_OFFLOAD_NO;) CHECK_THAT(cp_now_us() < end);
  ask_out();
}
static unsigned delay_us, late;
static void ask_at_some_time(void) {
  drop();
  pause_us(delay_us);
  late += cp_load(&cp.seat->offload) == CP_OFFLOAD_NO;
  ask_out();
}

/* The store has memory to give back: everything has been there. */
static void ask_in_a_drop(void (*asks)(void)) {
  cp_turn_end(CP_BY_BOUNDARY);
  ask_out();
  answered(ALL);
  give();
  use(0);
  all_back();
  cp_turn_end(CP_BY_BOUNDARY);
  CHECK_THAT(cp_host_memory(&cp.arenas.host) >= ALL * CP_CHUNK);
  asks();
  answered(ALL);
  CHECK_THAT(!ask_in_the_drop);
  give();
  use_all();
}

static void asked_in_a_drop(void) {
  static const unsigned delays[] = {0, 50, 300, 1000, 2000, 4000, 7000, 10000, 15000, 25000};
  const size_t count = SHORT_OR_LONG(0, sizeof delays / sizeof *delays);
  size_t need;
  cp_acquire(&cp.pool_lock);
  char *ballast = cp_pool_alloc(&cp.arenas.win[0].pool, BALLAST * CP_CHUNK, CP_GIB, 0, &need);
  cp_release(&cp.pool_lock);
  give();
  for (size_t i = 0; i < BALLAST * CP_CHUNK; i += CP_PAGE) ballast[i] = 1;
  ask_in_a_drop(ask_at_once);
  ask_in_a_drop(ask_meanwhile);
  ask_in_a_drop(ask_afterwards);
  for (size_t i = 0; i < count; i++) {
    delay_us = delays[i];
    ask_in_a_drop(ask_at_some_time);
  }
  printf("asked %u times before and %u times after the end of a drop\n", (unsigned)count - late, late);
  all_back();
  cp_acquire(&cp.pool_lock);
  cp_pool_free(&cp.arenas.win[0].pool, ballast);
  cp_release(&cp.pool_lock);
}

/* The daemon says "moved out" for a shim, when a turn has come and gone since. */
static void said_too_late(void) {
  give();
  use_all();
  cp_store(&cp.seat->offloaded, 1);
  cp_turn_end(CP_BY_BOUNDARY);
  CHECK_THAT(cp.seat->offloaded == 0);
  for (int asks = 0; asks < 2; asks++) {
    cp_store(&cp.seat->offloaded, 1);
    if (asks) {
      ask_out();
      answered(CHUNKS);
      spoil_buffer(CHUNKS);
    }
    give();
    use_all();
    all_back();
    cp_turn_end(CP_BY_BOUNDARY);
  }
}

/* A shim has moved everything, the device buffer is another job's; what comes alive now has no content. */
static void taken_from_outside(void) {
  static char chunk[CP_CHUNK];
  size_t need, span = CP_WINDOWS * CP_GIB;
  for (size_t i = 0; i < CHUNKS; i++) {
    CHECK_THAT(pread(buffer, chunk, CP_CHUNK, (off_t)(i * CP_CHUNK)) == (ssize_t)CP_CHUNK);
    CHECK_THAT(pwrite(store, chunk, CP_CHUNK, (off_t)(i * CP_CHUNK)) == (ssize_t)CP_CHUNK);
    CHECK_THAT(pwrite(store, &(char){CP_IN_STORE}, 1, (off_t)(span + i)) == 1);
  }
  CHECK_THAT(pwrite(store, &(char){CP_IN_STORE}, 1, (off_t)(span + CP_GIB / CP_CHUNK * 5)) == 1); /* in an unused window */
  cp_store(&cp.seat->stored, 7);
  cp_store(&cp.seat->offloaded, 1);
  spoil_buffer(CHUNKS);
  cp_acquire(&cp.pool_lock);
  void *fresh = cp_pool_alloc(&cp.arenas.win[0].pool, 4 * CP_CHUNK, CP_GIB, 0, &need);
  cp_release(&cp.pool_lock);
  for (int i = 0; i < 2; i++) {
    ask_out();
    answered(CHUNKS);
  }
  cp_acquire(&cp.pool_lock);
  cp_pool_free(&cp.arenas.win[0].pool, fresh);
  cp_release(&cp.pool_lock);
  give();
  use_all();
  all_back();
  cp_turn_end(CP_BY_BOUNDARY);
}

/* ---- another device buffer, and no descriptor left for it -------------------------------------------------------- */

static int new_buffer(uint64_t number) {
  int fd = memfd_create("bank", MFD_CLOEXEC);
  CHECK_THAT(fd >= 0 && !ftruncate(fd, CP_WINDOWS * (off_t)CP_GIB));
  cp_store(&cp.seat->bank, number);
  send_packet(daemon_fd, (struct cp_packet){.type = CP_BANK, .a = number}, fd);
  return fd;
}

/* Returns how many it was. */
static rlim_t allow_descriptors(rlim_t most) {
  struct rlimit l;
  CHECK_THAT(!getrlimit(RLIMIT_NOFILE, &l));
  rlim_t before = l.rlim_cur;
  l.rlim_cur = most;
  CHECK_THAT(!setrlimit(RLIMIT_NOFILE, &l));
  return before;
}

/* None of its locks is held by the helper thread, which is not there in the child. */
static pid_t fork_with_locks(void) {
  struct cp_lock *locks[] = {&cp.grow_lock, &cp.pool_lock, &cp.gate_lock};
  for (int i = 0; i < 3; i++) cp_acquire(locks[i]);
  pid_t pid = fork();
  for (int i = 2; i >= 0; i--) cp_release(locks[i]);
  return pid;
}

/* In a child, so that it can die: not even the old device buffer's descriptor is below the limit. */
static void without_any(void) {
  char text[200] = "";
  int status, out[2];
  CHECK_THAT(!pipe(out));
  pid_t pid = fork_with_locks();
  CHECK_THAT(pid >= 0);
  if (!pid) {
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    dup2(out[1], 2);
    allow_descriptors(3);
    use(0);
    _exit(0);
  }
  CHECK_THAT(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
  CHECK_THAT(read(out[0], text, sizeof text - 1) > 0 && !strncmp(text, "carpool: ", 9) && strstr(text, "ulimit -n"));
  close(out[0]);
  close(out[1]);
}

static void no_descriptors(void) {
  leave();
  int other = new_buffer(5), before = cp.arenas.device_fd;
  give();
  without_any();
  int used = dup(0);
  close(used);
  rlim_t most = allow_descriptors((rlim_t)used); /* all below are in use */
  CHECK_THAT(dup(0) < 0 && errno == EMFILE);
  use_all();
  CHECK_THAT(cp.buffer == 5 && cp.arenas.device_fd == before && dup(0) < 0);
  allow_descriptors(most);
  all_back();
  uint64_t first;
  for (size_t i = 0; i < CHUNKS; i++)
    CHECK_THAT(pread(other, &first, 8, (off_t)(i * CP_CHUNK)) == 8 && first == i * 1000003);
  cp_turn_end(CP_BY_BOUNDARY);
  close(buffer);
  buffer = other;
}

/* ---- a turn that cannot be ended ------------------------------------------------------------------------------------- */

static uint64_t processor_us(void) {
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return (uint64_t)t.tv_sec * 1000000u + (uint64_t)t.tv_nsec / 1000u;
}

static void cannot_close(void) {
  struct rlimit l, none;
  size_t need, bytes = 8 * CP_MIB;
  give();
  cp_acquire(&cp.pool_lock);
  struct cp_pool *pool = &cp.arenas.win[cp.arenas.ephemeral].pool;
  char *passing = cp_pool_alloc(pool, bytes, CP_GIB, 0, &need);
  cp_release(&cp.pool_lock);
  memset(passing, 7, bytes);
  CHECK_THAT(!getrlimit(RLIMIT_AS, &l));
  none = l;
  none.rlim_cur = CP_MIB;
  CHECK_THAT(!setrlimit(RLIMIT_AS, &none)); /* no memory for what is to be saved */
  cp_store(&cp.seat->yield, CP_YIELD_NOW);
  cp_notify(cp.seat);
  uint64_t before = processor_us(), begin = cp_now_us();
  pause_us(300000);
  uint64_t spent = processor_us() - before, passed = cp_now_us() - begin;
  CHECK_THAT(cp_load(&cp.seat->forced) == 0);
  CHECK_THAT(!setrlimit(RLIMIT_AS, &l));
  printf("%lu us of a turn that could not be ended took %lu us\n", (unsigned long)passed, (unsigned long)spent);
  CHECK_THAT(spent < passed / 2);
  for (uint64_t end = cp_now_us() + 20000000; cp_load(&cp.seat->turn);) CHECK_THAT(cp_now_us() < end);
  CHECK_THAT(cp.seat->forced == 1);
  give();
  for (size_t i = 0; i < bytes; i++) CHECK_THAT(passing[i] == 7);
  use_all();
  cp_acquire(&cp.pool_lock);
  cp_pool_free(pool, passing);
  cp_release(&cp.pool_lock);
  cp_turn_end(CP_BY_BOUNDARY);
}

int main(void) {
  begin();
  cp_turn_end(CP_BY_BOUNDARY);
  asked_in_a_drop();
  cp_turn_end(CP_BY_BOUNDARY);
  said_too_late();
  taken_from_outside();
  no_descriptors();
  cannot_close();
  return 0;
}
