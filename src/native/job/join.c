/* Joining: a process that no shim has started becomes a job of its own, when it is about to use its device.
 *
 * What a shim does for its job this process does for itself: it keeps the descriptors whose loss would end the job, and
 * brings them to the next daemon.  A thread of its own listens to the daemon.  Messages are JSON, one to a packet
 * (src/carpool/protocol/session.py); the names in them come back as they were sent, with their escapes. */
#include "base/process.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#define MOST_MESSAGE 65536
#define MOST_FDS 16
#define AGAIN_US 100000
#define LOOK_MS 1000      /* so often a wait looks whether it was interrupted in the meantime */
#define REFUSED_TRIES 20  /* nobody listens: so often it is tried again */
#define ANSWER_TRIES 100  /* the daemon ended before it had answered */

struct kept {
  char *name;
  int fd;
};

static struct {
  char *path, *message; /* NULL: this process does not join */
  pid_t process;        /* the one that joins; its forks do not */
  int session, channel; /* the latter is the daemon's end */
  uint64_t job, attempt, interrupts;
  uint32_t waits, over;
  struct kept *kept;
  size_t count, room;
} joined = {.session = -1, .channel = -1};
static struct cp_lock lock; /* what is kept, and the session; nothing else is locked below it */
static char said[512];      /* why it does not join */

static int fail(const char *why) {
  snprintf(said, sizeof said, "%s", why);
  cp_failure = said;
  return -1;
}

static void rest(long us) { syscall(SYS_nanosleep, &(struct timespec){us / 1000000, us % 1000000 * 1000}, NULL); }

/* ---- packets --------------------------------------------------------------------------------------------------------- */

union control {
  struct cmsghdr align;
  char bytes[CMSG_SPACE(MOST_FDS * sizeof(int))];
};

static int send_packet(int to, const char *text, const int *fds, int count) {
  union control control;
  struct iovec v = {.iov_base = (void *)(uintptr_t)text, .iov_len = strlen(text)};
  struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};
  if (count) {
    m.msg_control = &control;
    m.msg_controllen = CMSG_SPACE((size_t)count * sizeof(int));
    struct cmsghdr *c = CMSG_FIRSTHDR(&m);
    *c = (struct cmsghdr){CMSG_LEN((size_t)count * sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
    memcpy(CMSG_DATA(c), fds, (size_t)count * sizeof(int));
  }
  long n;
  do n = syscall(SYS_sendmsg, to, &m, MSG_NOSIGNAL);
  while (n < 0 && errno == EINTR);
  return n < 0 ? -1 : 0;
}

/* The length, 0 at the end, or -1 with errno. */
static long receive_packet(int from, char *text, int *fds, int *count, int flags) {
  union control control;
  struct iovec v = {.iov_base = text, .iov_len = MOST_MESSAGE - 1};
  struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
  long n = syscall(SYS_recvmsg, from, &m, flags | MSG_CMSG_CLOEXEC);
  *count = 0;
  if (n < 0) return -1;
  text[n] = 0;
  for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    *count = (int)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
    memcpy(fds, CMSG_DATA(c), (size_t)*count * sizeof(int));
  }
  return n;
}

static bool is_type(const char *text, const char *type) {
  static const char head[] = "{\"type\":\"";
  size_t length = strlen(type);
  return !strncmp(text, head, sizeof head - 1) && !strncmp(text + sizeof head - 1, type, length) &&
         text[sizeof head - 1 + length] == '"';
}

static const char *field(const char *text, const char *name) {
  char key[32];
  snprintf(key, sizeof key, "\"%s\":", name);
  const char *found = strstr(text, key);
  return found ? found + strlen(key) : "";
}

/* The next text of a list, which ends behind *length bytes; NULL: there is none. */
static const char *next_text(const char **at, size_t *length) {
  const char *p = *at;
  while (*p == '[' || *p == ',') p++;
  if (*p != '"') return NULL;
  const char *begin = ++p;
  for (; *p && *p != '"'; p++)
    if (*p == '\\' && p[1]) p++;
  *length = (size_t)(p - begin);
  *at = *p ? p + 1 : p;
  return begin;
}

/* The daemon's reason, for people. */
static void take_reason(const char *text) {
  size_t length, n = 0;
  const char *at = field(text, "text"), *reason = next_text(&at, &length);
  for (size_t i = 0; reason && i < length && n < sizeof said - 1; i++)
    if (reason[i] != '\\' || (i && reason[i - 1] == '\\')) said[n++] = reason[i];
  said[n] = 0;
  cp_failure = said;
}

/* ---- what is kept: under the lock ------------------------------------------------------------------------------------- */

static void forget(const char *name, size_t length) {
  for (size_t i = 0; i < joined.count; i++) {
    struct kept *k = &joined.kept[i];
    if (strlen(k->name) != length || strncmp(k->name, name, length)) continue;
    syscall(SYS_close, k->fd);
    free(k->name);
    *k = joined.kept[--joined.count];
    return;
  }
}

static bool keep(const char *name, size_t length, int fd) {
  forget(name, length);
  if (joined.count == joined.room) {
    size_t room = joined.room ? 2 * joined.room : 64;
    struct kept *more = realloc(joined.kept, room * sizeof *more);
    if (!more) return false;
    joined.kept = more;
    joined.room = room;
  }
  char *copy = strndup(name, length);
  if (!copy) return false;
  joined.kept[joined.count++] = (struct kept){copy, fd};
  return true;
}

/* Owns the descriptors.  False: not all of them have come, or there is no memory; the daemon sends them again. */
static bool take_kept(const char *text, const int *fds, int count) {
  size_t length;
  int taken = 0;
  const char *at = field(text, "names"), *name;
  while ((name = next_text(&at, &length)) && taken < count && keep(name, length, fds[taken])) taken++;
  bool all = !name && taken == count;
  for (; taken < count; taken++) syscall(SYS_close, fds[taken]);
  return all;
}

static void drop_kept(const char *text) {
  size_t length;
  const char *at = field(text, "names"), *name;
  while ((name = next_text(&at, &length))) forget(name, length);
}

static void close_fd(int *fd) {
  if (*fd >= 0) syscall(SYS_close, *fd);
  *fd = -1;
}

/* Memory is not given back: this may be the child of a process with threads. */
static void close_everything(void) {
  close_fd(&joined.session);
  close_fd(&joined.channel);
  for (size_t i = 0; i < joined.count; i++) syscall(SYS_close, joined.kept[i].fd);
  joined.count = 0;
}

/* ---- the connection --------------------------------------------------------------------------------------------------- */

/* Relative to the directory: addresses of sockets are limited to 107 bytes.  -1 and errno. */
static int connect_to(const char *path) {
  char directory[4096];
  struct sockaddr_un to = {.sun_family = AF_UNIX};
  const char *name = strrchr(path, '/');
  if (!name || (size_t)(name - path) >= sizeof directory || strlen(name) > 64) return errno = EINVAL, -1;
  snprintf(directory, sizeof directory, "%.*s", (int)(name - path), path);
  int place = (int)syscall(SYS_openat, AT_FDCWD, directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (place < 0) return -1;
  snprintf(to.sun_path, sizeof to.sun_path, "/proc/self/fd/%d/%.64s", place, name + 1);
  int session = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), r = -1;
  if (session >= 0) do r = connect(session, (const struct sockaddr *)&to, sizeof to);
    while (r && errno == EINTR);
  int error = errno;
  if (r) close_fd(&session);
  syscall(SYS_close, place);
  errno = error;
  return session;
}

/* A part of what is kept, from ``*from`` on.  Lock held. */
static int send_part(int session, char *text, size_t *from) {
  int fds[MOST_FDS], count = 0;
  if (!*from) fds[count++] = joined.channel;
  size_t n = (size_t)snprintf(text, MOST_MESSAGE, "{\"type\":\"rejoin\",\"job\":%llu,\"attempt\":%llu,\"kept\":[",
                              (unsigned long long)joined.job, (unsigned long long)joined.attempt);
  size_t first = *from;
  for (; *from < joined.count && count < MOST_FDS && n + strlen(joined.kept[*from].name) + 64 < MOST_MESSAGE; ++*from) {
    n += (size_t)snprintf(text + n, MOST_MESSAGE - n, "%s\"%s\"", *from > first ? "," : "", joined.kept[*from].name);
    fds[count++] = joined.kept[*from].fd;
  }
  snprintf(text + n, MOST_MESSAGE - n, "],\"more\":%s}", *from < joined.count ? "true" : "false");
  return send_packet(session, text, fds, count);
}

/* To the next daemon, with everything.  Lock held, so nothing may take long. */
static void rejoin(char *text) {
  struct timeval patience = {.tv_sec = 1};
  int session = connect_to(joined.path);
  if (session < 0) return;
  setsockopt(session, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  size_t from = 0;
  int r;
  do r = send_part(session, text, &from);
  while (!r && from < joined.count);
  if (r) close_fd(&session);
  joined.session = session;
}

/* Without its home there will be no daemon.  A container has its directory mounted, which it keeps when it is removed. */
static bool home_is_gone(void) {
  char directory[4096];
  snprintf(directory, sizeof directory, "%.*s", (int)(strrchr(joined.path, '/') - joined.path), joined.path);
  struct stat status;
  if (!stat(directory, &status)) return !status.st_nlink;
  return errno == ENOENT || errno == ENOTDIR;
}

static void message(char *text, long length, const int *fds, int count) {
  bool whole = length > 0;
  if (whole && is_type(text, "keep"))
    whole = take_kept(text, fds, count);
  else
    for (int i = 0; i < count; i++) syscall(SYS_close, fds[i]);
  if (whole && is_type(text, "drop")) drop_kept(text);
  if (whole && is_type(text, "refused")) cp_store(&joined.over, 1);
  if (!whole) close_fd(&joined.session); /* the next registration says what is there */
}

/* Waits for the daemon, or for a while where there is none. */
static void await_daemon(void) {
  struct pollfd p = {.fd = joined.session, .events = POLLIN};
  if (p.fd < 0)
    rest(AGAIN_US);
  else
    syscall(SYS_poll, &p, 1, -1);
}

static void round_(char *text) {
  int fds[MOST_FDS], count;
  cp_acquire(&lock);
  if (joined.session < 0 && home_is_gone()) cp_store(&joined.over, 1);
  if (joined.session < 0 && !cp_load(&joined.over)) rejoin(text);
  while (joined.session >= 0 && !cp_load(&joined.over)) {
    long n = receive_packet(joined.session, text, fds, &count, MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) break;
    message(text, n, fds, count);
  }
  cp_release(&lock);
}

/* At the end nobody will answer: what waits for the daemon sees that its channel has ended. */
static void *listen_to_daemon(void *text) {
  while (!cp_load(&joined.over)) {
    await_daemon();
    round_(text);
  }
  cp_acquire(&lock);
  close_everything();
  cp_release(&lock);
  free(text);
  return NULL;
}

static int start_thread(void) {
  pthread_attr_t attributes;
  pthread_t thread;
  sigset_t all, old;
  char *text = malloc(MOST_MESSAGE);
  if (!text) return -1;
  sigfillset(&all);
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, CP_MIB);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_sigmask(SIG_SETMASK, &all, &old); /* signals are for the program's own threads */
  int r = pthread_create(&thread, &attributes, listen_to_daemon, text);
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  pthread_attr_destroy(&attributes);
  if (r) free(text);
  return r ? -1 : 0;
}

/* ---- joining ----------------------------------------------------------------------------------------------------------- */

bool cp_join_interrupted(void) { return cp_load(&joined.waits) && cp_load(&cp.interrupts) != joined.interrupts; }

/* A signal between the check and poll() does not interrupt poll(): its timeout bounds how late the signal is noticed. */
bool cp_join_readable(int fd) {
  struct pollfd wanted = {.fd = fd, .events = POLLIN};
  while (!cp_join_interrupted()) {
    int r = poll(&wanted, 1, LOOK_MS);
    if (r > 0 || (r < 0 && errno != EINTR)) return true;
  }
  return false;
}

/* 1: it has joined, 0: it is refused, -1: the daemon has gone before it answered. */
static int take_answer(int session) {
  static char text[MOST_MESSAGE];
  int fds[MOST_FDS], count;
  long n = -1;
  count = 0;
  while (cp_join_readable(session) && (n = receive_packet(session, text, fds, &count, 0)) < 0 && errno == EINTR);
  for (int i = 0; i < count; i++) syscall(SYS_close, fds[i]);
  if (cp_join_interrupted()) return fail("it was interrupted while it waited for the daemon"), 0;
  if (n <= 0) return -1;
  if (!is_type(text, "joined")) return take_reason(text), 0;
  joined.job = strtoull(field(text, "job"), NULL, 10);
  joined.attempt = strtoull(field(text, "attempt"), NULL, 10);
  return 1;
}

/* As take_answer, or -2: nobody listens.  The session stays open where the process has joined. */
static int ask(void) {
  int session = connect_to(joined.path);
  if (session < 0) {
    bool soon = errno == ECONNREFUSED || errno == EAGAIN; /* the daemon is being started again */
    bool other = errno == EACCES || errno == EPERM;
    fail(other ? "the daemon serves another user, and this process may not connect to it (a daemon of root serves all)"
               : "no daemon answers where CARPOOL_JOIN says (carpool up starts one)");
    return soon ? -2 : 0;
  }
  int answer = send_packet(session, joined.message, &joined.channel, 1) ? -1 : take_answer(session);
  joined.session = session;
  if (answer != 1) close_fd(&joined.session);
  if (answer < 0) fail("the daemon has ended before it answered");
  return answer;
}

static bool agreed(void) {
  int tries = REFUSED_TRIES, answer;
  for (int i = 0; (answer = ask()) < 0 && i < tries && !cp_join_interrupted(); i++) {
    if (answer == -1) tries = ANSWER_TRIES;
    rest(AGAIN_US);
  }
  return answer == 1;
}

/* The kernel may tell nobody how a process has ended that is nobody's child. */
extern int on_exit(void (*)(int, void *), void *) __attribute__((weak));
static void last_word(int code, void *unused) {
  char text[64];
  (void)unused;
  if (getpid() != joined.process || cp_load(&joined.over)) return;
  snprintf(text, sizeof text, "{\"type\":\"last_word\",\"code\":%d}", code & 0xff);
  cp_acquire(&lock);
  if (joined.session >= 0) send_packet(joined.session, text, NULL, 0);
  cp_release(&lock);
}

static int begin(int channel) {
  if (!agreed()) return -1;
  if (start_thread()) return fail("its thread cannot be started");
  if (on_exit) on_exit(last_word, NULL);
  return channel;
}

bool cp_joins(void) { return joined.path != NULL; }

int cp_join_now(void) {
  int pair[2];
  if (getpid() != joined.process || cp_load(&joined.over)) return fail("it has been a job already, or is the child of one");
  if (cp_signals_start()) return fail("the handlers of signals could not be installed");
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair)) return fail("no socket can be made");
  joined.channel = pair[0];
  joined.interrupts = cp_load(&cp.interrupts);
  cp_store(&joined.waits, 1);
  int channel = begin(pair[1]);
  if (channel < 0) {
    close_everything();
    syscall(SYS_close, pair[1]);
    cp_store(&joined.over, 1);
  }
  return channel;
}

void cp_join_seated(bool seated) {
  if (!cp_joins()) return;
  cp_store(&joined.waits, 0);
  if (seated || cp_load(&joined.over)) return;
  cp_store(&joined.over, 1);
  cp_acquire(&lock);
  if (joined.session >= 0) {
    send_packet(joined.session, "{\"type\":\"leave\"}", NULL, 0);
    shutdown(joined.session, SHUT_RD); /* wakes the thread, which closes everything */
  }
  cp_release(&lock);
}

void cp_join_before_fork(void) {
  if (cp_joins()) cp_acquire(&lock);
}

void cp_join_after_fork(bool child) {
  if (!cp_joins()) return;
  if (child) {
    close_everything();
    joined.path = NULL;
    cp_reset_lock(&lock);
    cp_section_end();
  } else {
    cp_release(&lock);
  }
}

/* This process joins when it is about to use its device.  ``message``: what it says then, the first one of
 * src/carpool/protocol/session.py.  ``cuda``: the device is a GPU.  2, or -1 and cp_error(). */
CP_EXPORT int cp_join(const char *path, const char *text, int cuda) {
  if (cp.attached || cp.pending || cp_joins()) return fail("this process is attached already");
  if (!strchr(path, '/')) return fail("CARPOOL_JOIN is no absolute path");
  if (!cuda && !cp_find_text()) return fail("libc10.so is not loaded: import torch first");
  joined.process = getpid();
  joined.message = strdup(text);
  joined.path = strdup(path);
  if (!joined.path || !joined.message) return fail("there is no memory");
  cp.fd = -1;
  const struct cp_backend *gpu = cp_backends[CP_KIND_CUDA];
  if (cuda && gpu && gpu->pending) gpu->pending();
  cp_store(&cp.pending, 1);
  return CP_LATER;
}
