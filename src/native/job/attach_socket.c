/* The attach socket of a job: every process that connects gets a job channel of its own (the shim listens there). */
#include "base/process.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>

static int open_directory(void) {
  char path[4096];
  const char *home = getenv("CARPOOL_HOME"), *job = getenv("CARPOOL_JOB");
  if (!home || !job) return -1;
  int n = snprintf(path, sizeof path, "%s/jobs/%s", home, job);
  if (n < 0 || (size_t)n >= sizeof path) return -1;
  return (int)syscall(SYS_openat, AT_FDCWD, path, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

/* Relative to the directory: addresses of sockets are limited to 107 bytes. */
static int connect_to(int channel, int directory) {
  struct sockaddr_un to = {.sun_family = AF_UNIX};
  snprintf(to.sun_path, sizeof to.sun_path, "/proc/self/fd/%d/door", directory);
  int r;
  do r = connect(channel, (const struct sockaddr *)&to, sizeof to);
  while (r && errno == EINTR);
  return r;
}

int cp_attach_socket(void) {
  int directory = open_directory();
  if (directory < 0) return -1;
  int channel = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (channel >= 0 && connect_to(channel, directory)) {
    syscall(SYS_close, channel);
    channel = -1;
  }
  syscall(SYS_close, directory);
  return channel;
}
