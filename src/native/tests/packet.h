/* What a daemon sends: a packet, with a descriptor or without. */
#ifndef CARPOOL_TEST_PACKET_H
#define CARPOOL_TEST_PACKET_H
#include "tests/check.h"

#include <string.h>
#include <sys/socket.h>

#include "abi/seat.h"

/* fd: -1 sends none. */
static inline void send_packet(int channel, struct cp_packet p, int fd) {
  union {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(sizeof(int))];
  } control;
  struct iovec v = {.iov_base = &p, .iov_len = sizeof p};
  struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};
  memset(&control, 0, sizeof control);
  control.align = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof fd), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
  memcpy(CMSG_DATA(&control.align), &fd, sizeof fd);
  if (fd >= 0) m.msg_control = &control, m.msg_controllen = sizeof control;
  CHECK_THAT(sendmsg(channel, &m, 0) == (ssize_t)sizeof p);
}
#endif
