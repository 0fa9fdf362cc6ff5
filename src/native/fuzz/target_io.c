/* System calls that are handed arena memory (base/io_bounce.c): with any vectors, lengths and descriptors a call does to
 * arena memory what it does to other memory, and returns the same.  As in a job, the library's functions stand before libc's. */
#include "fuzz/fuzz.h"
#include "tests/check.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/io_bounce.c" /* defines read() and so on */
#include "base/section.c"

struct cp_process cp;
uint64_t cp_syscalls;

#define ROOM 16384u
#define MOST 1040 /* parts: a few more than the kernel takes */

/* The same call is made twice: `own` is arena memory the first time. */
struct side {
  char *own, *other; /* ROOM bytes each */
  int fd, peer;      /* of a file, or of a pair of sockets */
  FILE *file;
  ssize_t result;
  int error;
};

struct part {
  uint32_t where, offset;
  size_t length;
};

struct plan {
  uint32_t call, kind, count, flags;
  int n; /* as it is said to the call */
  off_t offset;
  struct part part[MOST];
};

enum { READ, WRITE, PREAD, PWRITE, RECV, SEND, READV, WRITEV, PREADV, PWRITEV, PREADV2, PWRITEV2, SENDMSG, RECVMSG,
       FREAD, FWRITE, CALLS };
enum { FILE_, SOCKET, CLOSED, KINDS };
enum { OWN, OTHER, NOWHERE, PLACES };

/* A length beyond all memory is a program's mistake; of other memory the kernel would say so. */
static struct part take_part(struct input *in, bool vector) {
  struct part p = {draw_below(in, PLACES), (uint32_t)draw(in, 2) % ROOM, draw(in, 2)};
  uint32_t nonsense = draw_below(in, 16);
  p.length %= ROOM - p.offset + 1;
  if (nonsense == 1) p.length = 0;
  vector &= p.where == OWN;
  if (nonsense == 2 && vector) p.length = SIZE_MAX;
  if (nonsense == 3 && vector) p.length = SSIZE_MAX - (SSIZE_MAX >> (1 + draw_below(in, 8)));
  return p;
}

static struct plan take_plan(struct input *in) {
  static struct plan p;
  p = (struct plan){.call = draw_below(in, CALLS), .kind = draw_below(in, KINDS), .flags = draw_below(in, 4)};
  p.offset = (off_t)draw(in, 2) - 16;
  p.count = draw_below(in, 8);
  if (p.count == 7) p.count = (uint32_t)draw(in, 2) % MOST;
  p.n = draw_below(in, 16) ? (int)p.count : -1;
  for (uint32_t i = 0; i < p.count; i++) p.part[i] = take_part(in, p.call >= READV && p.call <= RECVMSG);
  return p;
}

static char *address(const struct side *s, const struct part *p) {
  return p->where == NOWHERE ? NULL : (p->where == OWN ? s->own : s->other) + p->offset;
}

static ssize_t call(const struct plan *p, struct side *s) {
  static struct iovec v[MOST];
  for (uint32_t i = 0; i < p->count; i++) v[i] = (struct iovec){address(s, &p->part[i]), p->part[i].length};
  struct msghdr m = {.msg_iov = v, .msg_iovlen = (size_t)p->n};
  char *at = v[0].iov_base;
  size_t size = p->count ? v[0].iov_len : 0;
  switch (p->call) {
  case READ: return read(s->fd, at, size);
  case WRITE: return write(s->fd, at, size);
  case PREAD: return pread(s->fd, at, size, p->offset);
  case PWRITE: return pwrite(s->fd, at, size, p->offset);
  case RECV: return recv(s->fd, at, size, MSG_DONTWAIT | (p->flags & 1 ? MSG_PEEK : 0));
  case SEND: return send(s->fd, at, size, MSG_DONTWAIT | MSG_NOSIGNAL);
  case READV: return readv(s->fd, v, p->n);
  case WRITEV: return writev(s->fd, v, p->n);
  case PREADV: return preadv(s->fd, v, p->n, p->offset);
  case PWRITEV: return pwritev(s->fd, v, p->n, p->offset);
  case PREADV2: return preadv2(s->fd, v, p->n, p->offset, (int)p->flags);
  case PWRITEV2: return pwritev2(s->fd, v, p->n, p->offset, (int)(p->flags & 1) * RWF_APPEND);
  case SENDMSG: return sendmsg(s->fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
  case RECVMSG: return recvmsg(s->fd, &m, MSG_DONTWAIT);
  default: return 0;
  }
}

/* Lengths are those of a program that knows its buffer: libc's own functions trust them. */
static size_t stdio(const struct plan *p, struct side *s) {
  size_t size = 1 + p->flags, count = p->count ? (p->part[0].length % (ROOM - p->part[0].offset + 1)) / size : 0;
  char *at = p->count && p->part[0].where != NOWHERE ? address(s, &p->part[0]) : s->own;
  if (p->part[0].where == NOWHERE) count %= ROOM / size / 2;
  size_t n = p->call == FREAD ? fread(at, size, count, s->file) : fwrite(at, size, count, s->file);
  fflush(s->file);
  return n;
}

static void fill(char *at, uint32_t from) {
  for (uint32_t i = 0; i < ROOM; i++) at[i] = (char)(i * 7 + from);
}

static int socket_of(int *peer) {
  static char content[ROOM / 4];
  int pair[2];
  memset(content, 'x', sizeof content);
  CHECK_THAT(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair));
  CHECK_THAT((size_t)send(pair[1], content, sizeof content, 0) == sizeof content);
  *peer = pair[1];
  return pair[0];
}

static void begin(struct side *s, const struct plan *p) {
  s->own = malloc(ROOM);
  s->other = malloc(ROOM);
  fill(s->own, 1);
  fill(s->other, 2);
  s->peer = -1;
  if (p->kind == SOCKET && p->call != FREAD && p->call != FWRITE) {
    s->fd = socket_of(&s->peer);
  } else {
    s->fd = memfd_create("fuzz", 0);
    CHECK_THAT(s->fd >= 0 && pwrite(s->fd, s->other, ROOM / 2, 0) == ROOM / 2);
  }
  s->file = p->call == FREAD || p->call == FWRITE ? fdopen(s->fd, "r+") : NULL;
  if (p->kind == CLOSED && !s->file) close(s->fd);
}

static void make_call(struct side *s, const struct plan *p) {
  errno = 0;
  s->result = s->file ? (ssize_t)stdio(p, s) : call(p, s);
  s->error = s->result < 0 ? errno : 0;
}

/* The bytes that went out, or those that are left to read. */
static size_t content(const struct side *s, char *into, size_t room) {
  int fd = s->peer >= 0 ? s->peer : s->fd;
  ssize_t n = s->peer >= 0 ? syscall(SYS_recvfrom, fd, into, room, MSG_DONTWAIT, NULL, NULL)
                           : syscall(SYS_pread64, fd, into, room, 0);
  return n < 0 ? 0 : (size_t)n;
}

static void end(struct side *s, const struct plan *p) {
  if (s->file) fclose(s->file);
  else if (p->kind != CLOSED) close(s->fd);
  if (s->peer >= 0) close(s->peer);
  free(s->own);
  free(s->other);
}

static bool has_nonsense(const struct plan *p) {
  for (uint32_t i = 0; i < p->count; i++)
    if (p->part[i].length > ROOM) return true;
  return false;
}

/* Where the kernel stops in the middle, it may have written more than it says. */
static bool leads_nowhere(const struct plan *p) {
  for (uint32_t i = 0; i < p->count; i++)
    if (p->part[i].where == NOWHERE && p->part[i].length) return true;
  return false;
}

static void compare(const struct plan *p, struct side *arena, struct side *plain) {
  static char one[8 * ROOM], two[8 * ROOM];
  CHECK_THAT(arena->result == plain->result && arena->error == plain->error);
  if (leads_nowhere(p)) return;
  CHECK_THAT(!memcmp(arena->own, plain->own, ROOM) && !memcmp(arena->other, plain->other, ROOM));
  size_t bytes = content(arena, one, sizeof one);
  CHECK_THAT(bytes == content(plain, two, sizeof two) && !memcmp(one, two, bytes));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  struct input in = {data, size};
  struct plan p = take_plan(&in);
  struct side arena, plain;
  begin(&arena, &p);
  begin(&plain, &p);
  cp.arenas.lo = arena.own;
  cp.arenas.span = ROOM;
  make_call(&arena, &p);
  cp.arenas.span = 0;
  if (has_nonsense(&p))
    CHECK_THAT(arena.result < 0);
  else {
    make_call(&plain, &p);
    compare(&p, &arena, &plain);
  }
  end(&arena, &p);
  end(&plain, &p);
  return 0;
}
