/* The job has been moved: its new lane or bank waits in the job channel. */
#include "process.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#define FILE_TRIES 20

/* Going on would mean to compute in memory that is somebody else's. */
static _Noreturn void give_up(const char *why) {
  static const char prefix[] = "carpool: this job has been moved to other memory and cannot follow: ";
  struct iovec v[3] = {{(void *)(uintptr_t)prefix, sizeof prefix - 1}, {(void *)(uintptr_t)why, strlen(why)}, {"\n", 1}};
  syscall(SYS_writev, 2, v, 3);
  signal(SIGABRT, SIG_DFL);
  abort();
}

static int *mapped_fd(const struct cp_packet *p) {
  return p->type == CP_LANE ? &cp.arenas.lane_fd : p->type == CP_BANK ? &cp.arenas.device_fd : NULL;
}

/* Another descriptor for the file that comes with the next packet, which stays in the channel; -1: there is none. */
static int peek(struct cp_packet *p) {
  union {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(sizeof(int))];
  } control;
  struct iovec v = {.iov_base = p, .iov_len = sizeof *p};
  for (;;) {
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    cp_add(&cp_syscalls, 1);
    long n = syscall(SYS_recvmsg, cp.fd, &m, MSG_PEEK | MSG_CMSG_CLOEXEC);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) give_up(n ? "the job channel is broken" : "the job channel is closed");
    if (n != (long)sizeof *p) p->type = 0;
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    int fd = -1;
    if (c && c->cmsg_type == SCM_RIGHTS) memcpy(&fd, CMSG_DATA(c), sizeof fd);
    return fd;
  }
}

static void skip_packet(void) {
  struct cp_packet p;
  do cp_add(&cp_syscalls, 1);
  while (syscall(SYS_recvfrom, cp.fd, &p, sizeof p, 0, NULL, NULL) < 0 && errno == EINTR);
}

static void close_fd(int *fd) {
  if (*fd >= 0) syscall(SYS_close, *fd);
  *fd = -1;
}

/* A process may have as many descriptors as it is allowed to: then the old file's is closed first. */
static void take_file(struct cp_packet *p, int fd) {
  struct cp_arenas *a = &cp.arenas;
  for (int i = 0; fd < 0; i++) {
    if (i == FILE_TRIES) give_up("no file descriptor is left for it (ulimit -n)");
    if (i) syscall(SYS_nanosleep, &(struct timespec){.tv_nsec = 10000000}, NULL); /* other threads close and open, too */
    close_fd(mapped_fd(p));
    fd = peek(p);
  }
  close_fd(mapped_fd(p));
  if (p->type == CP_LANE ? cp_arenas_set_lane(a, fd) : cp_arenas_set_bank(a, fd)) give_up("it cannot be mapped");
  *(p->type == CP_LANE ? &cp.lane : &cp.bank) = p->a;
  cp.bank_new |= p->type == CP_BANK;
}

void cp_take_files(void) {
  struct cp_packet p;
  while (cp_load(&cp.seat->lane) != cp.lane || cp_load(&cp.seat->bank) != cp.bank) {
    int fd = peek(&p);
    if (mapped_fd(&p))
      take_file(&p, fd);
    else
      close_fd(&fd);
    skip_packet();
  }
}
