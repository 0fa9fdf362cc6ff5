/* One job process on the host device, of the library's own sources, for targets.  Nothing waits: where the process would
 * be given up, sleep, or wait for a packet, the input is over. */
#ifndef CARPOOL_FUZZ_JOB_H
#define CARPOOL_FUZZ_JOB_H
#include "fuzz/fuzz.h"
#include "tests/check.h"
#include "tests/no_joining.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "base/process.h"

static jmp_buf given_up; /* the input is over */
static _Noreturn void give_up(void) { longjmp(given_up, 1); }

/* The daemon and other processes write on; defined by the target. */
static void others_write(void);

#undef SYS_nanosleep
#define SYS_nanosleep SYS_getppid
#define abort() give_up()
#define cp_await_daemon await_for_real
#include "base/channel.c"
#undef cp_await_daemon
#undef abort

void cp_await_daemon(uint32_t *word, uint32_t expected) {
  if (cp_load(word) == expected) others_write();
}

#include "arena/arena.c"
#include "arena/packed.c"
#include "arena/persistent.c"
#include "arena/pool.c"
#include "arena/promote.c"
#include "arena/residue.c"
#include "base/section.c"
#include "job/attach_socket.c"
#include "job/lane_change.c"
#include "job/seat_handoff.c"
#include "store/access_order.c"
#include "store/host_store.c"
#include "store/offload.c"
#include "store/restore.c"
#include "turn/boundary.c"
#include "turn/grow.c"
#include "turn/pause.c"
#include "turn/pack.c"
#include "turn/turn.c"

uint32_t cp_service_wants(void) { return 0; }
void cp_service_revoked(void) {}
void cp_service_again(void) {}
void cp_groups_dropped(uint64_t key) { (void)key; }
void cp_groups_clear(void) {}
bool cp_fork_pending(void) { return false; }
bool cp_fork_wanted(void) { return false; }
void cp_fork_wait(void) {}
void cp_fork_settle(void) {}
const struct cp_backend *const cp_backends[CP_KINDS] = {&cp_host_backend, &cp_host_backend};

/* What a target needs of a job.  `span`: the bytes of all its windows. */
#define SPAN (CP_WINDOWS * (off_t)CP_GIB)
static int daemon_fd = -1;

static int file_of(off_t bytes) {
  int fd = memfd_create("fuzz", MFD_CLOEXEC);
  CHECK_THAT(fd >= 0 && !ftruncate(fd, bytes));
  return fd;
}

/* A descriptor that comes with a packet: of the right size, too small, or no file at all; -1: none comes. */
__attribute__((unused)) static int some_file(struct input *in) {
  switch (draw_below(in, 5)) {
  case 0: return -1;
  case 1: return file_of((off_t)draw(in, 2));
  case 2: return (int)syscall(SYS_openat, AT_FDCWD, "/dev/null", O_RDONLY | O_CLOEXEC);
  default: return file_of(SPAN + SPAN / CP_CHUNK);
  }
}

static void send_bytes(const void *bytes, size_t size, const int *fds, size_t count) {
  union {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(8 * sizeof(int))];
  } control;
  struct iovec v = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = size};
  struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};
  memset(&control, 0, sizeof control);
  control.align =
      (struct cmsghdr){.cmsg_len = CMSG_LEN(count * sizeof *fds), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
  if (count) {
    memcpy(CMSG_DATA(&control.align), fds, count * sizeof *fds);
    m.msg_control = &control;
    m.msg_controllen = CMSG_SPACE(count * sizeof *fds);
  }
  sendmsg(daemon_fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* A channel on which nobody waits. */
static void open_channel(void) {
  int pair[2];
  CHECK_THAT(!socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair));
  cp.fd = pair[0];
  daemon_fd = pair[1];
}

/* All that an input has left, for the next one to begin anew. */
static void forget_job(void) {
  if (cp.arenas.win[0].base) cp_arenas_end(&cp.arenas);
  if (cp.arenas.residue.memory) munmap(cp.arenas.residue.memory, cp.arenas.residue.capacity);
  if (cp.arenas.residue.run) munmap(cp.arenas.residue.run, cp.arenas.residue.run_capacity * sizeof(struct cp_run));
  cp_host_end(&cp.arenas.host);
  uint32_t *lists[] = {cp.order.known, cp.order.fresh, cp.order.plan, cp.order.place};
  for (size_t i = 0; i < 4; i++)
    if (lists[i]) munmap(lists[i], SPAN / CP_CHUNK * sizeof(uint32_t));
  if (cp.order.noted) munmap(cp.order.noted, SPAN / CP_CHUNK);
  for (uint32_t i = 0; i < weights_count; i++) close(weights[i].fd);
  weights_count = 0;
  memset(&pending, 0, sizeof pending);
  cp_section = (struct cp_section){0};
  claim_lock = (struct cp_lock){0};
  if (cp.fd >= 0) close(cp.fd);
  if (daemon_fd >= 0) close(daemon_fd);
  daemon_fd = -1;
  cp = (struct cp_process){.fd = -1, .backend = &cp_host_backend};
}

/* Closes what an input has left open; returns how many.  The first call, before any input, says what is not its own. */
__attribute__((unused)) static uint32_t leftovers(void) {
  static uint64_t others;
  uint32_t count = 0;
  bool first = !others;
  for (int fd = 0; fd < 64; fd++) {
    if (others >> fd & 1 || fcntl(fd, F_GETFD) < 0) continue;
    if (first) others |= 1ull << fd;
    else count += !close(fd);
  }
  return first ? 0 : count;
}
#endif
