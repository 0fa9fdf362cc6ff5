/* The job channel.  A packet is looked at first and taken away when it has been dealt with: a descriptor that cannot be
 * had now, because too many are open, can be had later. */
#include "base/process.h"

#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#ifndef FILE_TRIES
#define FILE_TRIES 300 /* three seconds */
#endif
#ifndef CHANNEL_LOOK_US
#define CHANNEL_LOOK_US 1000000 /* so often a thread that waits looks whether anybody can still answer */
#endif

/* To continue would be to compute in memory that belongs to another job by now. */
_Noreturn void cp_give_up(const char *why) {
  static const char prefix[] = "carpool: the memory that this job has been given cannot be used: ";
  struct iovec v[3] = {
      {(void *)(uintptr_t)prefix, sizeof prefix - 1}, {(void *)(uintptr_t)why, strlen(why)}, {"\n", 1}};
  syscall(SYS_writev, 2, v, 3);
  signal(SIGABRT, SIG_DFL);
  abort();
}

bool cp_peek(struct cp_packet *p, int *fd, bool wait) {
  union {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(sizeof(int))];
  } control;
  struct iovec v = {.iov_base = p, .iov_len = sizeof *p};
  *fd = -1;
  for (;;) {
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    cp_add(&cp_syscalls, 1);
    long n = syscall(SYS_recvmsg, cp.fd, &m, MSG_PEEK | MSG_CMSG_CLOEXEC | (wait ? 0 : MSG_DONTWAIT));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0 && !wait) return false;
    if (n <= 0) cp_give_up(n ? "the job channel is broken" : "the job channel is closed");
    if (n != (long)sizeof *p) p->type = 0;
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    if (c && c->cmsg_type == SCM_RIGHTS) memcpy(fd, CMSG_DATA(c), sizeof *fd);
    return true;
  }
}

void cp_skip_packet(void) {
  struct cp_packet p;
  do cp_add(&cp_syscalls, 1);
  while (syscall(SYS_recvfrom, cp.fd, &p, sizeof p, 0, NULL, NULL) < 0 && errno == EINTR);
}

void cp_close_fd(int *fd) {
  if (*fd >= 0) syscall(SYS_close, *fd);
  *fd = -1;
}

int cp_insist(struct cp_packet *p, int *instead) {
  int fd;
  for (int i = 0;; i++) {
    if (i == FILE_TRIES) cp_give_up("no file descriptor is left (raise ulimit -n)");
    /* Other threads close and open, too. */
    if (i) syscall(SYS_nanosleep, &(struct timespec){.tv_nsec = 10000000}, NULL);
    if (instead) cp_close_fd(instead);
    cp_peek(p, &fd, true);
    if (fd >= 0) return fd;
  }
}

/* A daemon that is killed comes back to the same channel, which the shim keeps meanwhile: so it ends with the job. */
static bool has_ended(void) {
  struct pollfd channel = {.fd = cp.fd};
  cp_add(&cp_syscalls, 1);
  return cp_channel_is_there() && poll(&channel, 1, 0) == 1 && channel.revents & POLLHUP;
}

void cp_await_daemon(uint32_t *word, uint32_t expected) {
  if (cp_futex_wait(word, expected, CHANNEL_LOOK_US) != ETIMEDOUT || !has_ended()) return;
  cp_give_up("the job has ended through whose channel this process has joined Carpool");
}
