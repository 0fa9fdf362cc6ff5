/* System calls and stdio calls that are handed arena memory.  The kernel would answer EFAULT (possibly after partial
 * progress) instead of faulting, so the bytes go through a bounce buffer, which the job's own thread fills or empties:
 * those accesses trap like any other.  Calls on other memory pass straight through. */
#include "base/process.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>

#undef fread_unlocked /* macros of optimised builds */
#undef fwrite_unlocked

#define CHUNK CP_MIB /* bytes per call on files; messages are never split */

static inline bool bounced(const void *p) { return CP_UNLIKELY(cp_arenas_hold(&cp.arenas, p)) && p; }

/* What the C library does not have (preadv2 in older ones) is there by our name. */
static ssize_t missing(void) { return errno = ENOSYS, -1; }

#define NEXT(name) \
  static __typeof__(&name) next_##name; \
  if (CP_UNLIKELY(!next_##name) && !(next_##name = (__typeof__(&name))dlsym(RTLD_NEXT, #name))) \
  return missing()

static void *buffer_new(size_t n) {
  void *p = mmap(NULL, n ? n : 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return p == MAP_FAILED ? NULL : p;
}
static void buffer_drop(void *p, size_t n) {
  int saved = errno;
  if (p) munmap(p, n ? n : 1);
  errno = saved;
}

/* ---- streams of bytes: loop over chunks while each is complete -------------------------------------------------------- */

typedef ssize_t (*step_fn)(void *argument, void *chunk, size_t bytes, size_t done);

static ssize_t pump(void *memory, size_t bytes, size_t chunk, bool in, step_fn step, void *argument) {
  size_t size = bytes < chunk ? bytes : chunk, done = 0;
  char *buffer = buffer_new(size);
  ssize_t n = 0;
  if (!buffer) {
    errno = ENOMEM;
    return -1;
  }
  do {
    size_t want = bytes - done < size ? bytes - done : size;
    if (!in) memcpy(buffer, (char *)memory + done, want);
    n = step(argument, buffer, want, done);
    if (n > 0 && in) memcpy((char *)memory + done, buffer, (size_t)n < want ? (size_t)n : want);
    if (n > 0) done += (size_t)n;
    if (n < 0 || (size_t)n < want) break;
  } while (done < bytes);
  buffer_drop(buffer, size);
  return done ? (ssize_t)done : n;
}

struct call {
  int fd, flags;
  off_t offset;
  void *address;
  void *length;
  FILE *file;
};

#define STEP(name, expression) \
  static ssize_t name(void *argument, void *chunk, size_t bytes, size_t done) { \
    const struct call *c = argument; \
    (void)done; \
    return expression; \
  }

STEP(step_read, syscall(SYS_read, c->fd, chunk, bytes))
STEP(step_write, syscall(SYS_write, c->fd, chunk, bytes))
STEP(step_pread, syscall(SYS_pread64, c->fd, chunk, bytes, c->offset + (off_t)done))
STEP(step_pwrite, syscall(SYS_pwrite64, c->fd, chunk, bytes, c->offset + (off_t)done))
STEP(step_recv, syscall(SYS_recvfrom, c->fd, chunk, bytes, c->flags, c->address, c->length))
STEP(step_send, syscall(SYS_sendto, c->fd, chunk, bytes, c->flags, c->address, (socklen_t)(uintptr_t)c->length))

CP_EXPORT ssize_t read(int fd, void *p, size_t n) {
  NEXT(read);
  if (!bounced(p)) return next_read(fd, p, n);
  return pump(p, n, CHUNK, true, step_read, &(struct call){.fd = fd});
}
CP_EXPORT ssize_t write(int fd, const void *p, size_t n) {
  NEXT(write);
  if (!bounced(p)) return next_write(fd, p, n);
  return pump((void *)p, n, CHUNK, false, step_write, &(struct call){.fd = fd});
}
CP_EXPORT ssize_t pread(int fd, void *p, size_t n, off_t at) {
  NEXT(pread);
  if (!bounced(p)) return next_pread(fd, p, n, at);
  return pump(p, n, CHUNK, true, step_pread, &(struct call){.fd = fd, .offset = at});
}
CP_EXPORT ssize_t pread64(int fd, void *p, size_t n, off_t at) { return pread(fd, p, n, at); }
CP_EXPORT ssize_t pwrite(int fd, const void *p, size_t n, off_t at) {
  NEXT(pwrite);
  if (!bounced(p)) return next_pwrite(fd, p, n, at);
  return pump((void *)p, n, CHUNK, false, step_pwrite, &(struct call){.fd = fd, .offset = at});
}
CP_EXPORT ssize_t pwrite64(int fd, const void *p, size_t n, off_t at) { return pwrite(fd, p, n, at); }

/* Messages: one call, whatever the size; a datagram must not be split and a stream may be short. */
CP_EXPORT ssize_t recvfrom(int fd, void *p, size_t n, int flags, struct sockaddr *from, socklen_t *length) {
  NEXT(recvfrom);
  if (!bounced(p)) return next_recvfrom(fd, p, n, flags, from, length);
  return pump(p, n, n, true, step_recv, &(struct call){.fd = fd, .flags = flags, .address = from, .length = length});
}
CP_EXPORT ssize_t recv(int fd, void *p, size_t n, int flags) {
  NEXT(recv);
  return bounced(p) ? recvfrom(fd, p, n, flags, NULL, NULL) : next_recv(fd, p, n, flags);
}
CP_EXPORT ssize_t sendto(int fd, const void *p, size_t n, int flags, const struct sockaddr *to, socklen_t length) {
  NEXT(sendto);
  if (!bounced(p)) return next_sendto(fd, p, n, flags, to, length);
  struct call c = {.fd = fd, .flags = flags, .address = (void *)to, .length = (void *)(uintptr_t)length};
  return pump((void *)p, n, n, false, step_send, &c);
}
CP_EXPORT ssize_t send(int fd, const void *p, size_t n, int flags) {
  NEXT(send);
  return bounced(p) ? sendto(fd, p, n, flags, NULL, 0) : next_send(fd, p, n, flags);
}

/* ---- vectors ------------------------------------------------------------------------------------------------------------ */

#define MOST_PARTS 1024 /* IOV_MAX */

struct vector {
  struct iovec part[MOST_PARTS];
  size_t bytes; /* in all parts that are bounced */
  char *buffer;
};

/* More parts than the kernel takes (a negative number among them) are its to refuse. */
static bool any_bounced(const struct iovec *v, size_t n) {
  for (size_t i = 0; v && i < n && n <= MOST_PARTS; i++)
    if (bounced(v[i].iov_base)) return true;
  return false;
}

/* The bytes of all parts that are bounced; SIZE_MAX: more than a call can move. */
static size_t bounced_bytes(const struct iovec *v, int n) {
  size_t bytes = 0;
  for (int i = 0; i < n; i++)
    if (bounced(v[i].iov_base) && (__builtin_add_overflow(bytes, v[i].iov_len, &bytes) || bytes > SSIZE_MAX))
      return SIZE_MAX;
  return bytes;
}

/* A copy of v in which arena parts point into one bounce buffer. */
static struct vector *vector_new(const struct iovec *v, int n, bool out) {
  size_t bytes = bounced_bytes(v, n);
  if (bytes == SIZE_MAX) {
    errno = EINVAL;
    return NULL;
  }
  struct vector *t = buffer_new(sizeof *t);
  if (!t) return NULL;
  t->bytes = bytes;
  t->buffer = buffer_new(t->bytes);
  if (!t->buffer) {
    buffer_drop(t, sizeof *t);
    errno = ENOMEM;
    return NULL;
  }
  char *at = t->buffer;
  for (int i = 0; i < n; i++) {
    t->part[i] = v[i];
    if (!bounced(v[i].iov_base)) continue;
    t->part[i].iov_base = at;
    if (out) memcpy(at, v[i].iov_base, v[i].iov_len);
    at += v[i].iov_len;
  }
  return t;
}

static ssize_t vector_end(struct vector *t, const struct iovec *v, int n, ssize_t got, bool in) {
  size_t left = got > 0 && in ? (size_t)got : 0;
  for (int i = 0; i < n && left; i++) {
    size_t k = v[i].iov_len < left ? v[i].iov_len : left;
    if (bounced(v[i].iov_base)) memcpy(v[i].iov_base, t->part[i].iov_base, k);
    left -= k;
  }
  buffer_drop(t->buffer, t->bytes);
  buffer_drop(t, sizeof *t);
  return got;
}

#define VECTOR_CALL(name, in, parameters, arguments, replaced) \
  CP_EXPORT ssize_t name parameters { \
    NEXT(name); \
    if (!any_bounced(v, (size_t)n)) return next_##name arguments; \
    struct vector *t = vector_new(v, n, !(in)); \
    if (!t) return -1; \
    return vector_end(t, v, n, next_##name replaced, in); \
  }
VECTOR_CALL(readv, true, (int fd, const struct iovec *v, int n), (fd, v, n), (fd, t->part, n))
VECTOR_CALL(writev, false, (int fd, const struct iovec *v, int n), (fd, v, n), (fd, t->part, n))
VECTOR_CALL(preadv, true, (int fd, const struct iovec *v, int n, off_t o), (fd, v, n, o), (fd, t->part, n, o))
VECTOR_CALL(pwritev, false, (int fd, const struct iovec *v, int n, off_t o), (fd, v, n, o), (fd, t->part, n, o))
VECTOR_CALL(preadv2, true, (int fd, const struct iovec *v, int n, off_t o, int f), (fd, v, n, o, f),
            (fd, t->part, n, o, f))
VECTOR_CALL(pwritev2, false, (int fd, const struct iovec *v, int n, off_t o, int f), (fd, v, n, o, f),
            (fd, t->part, n, o, f))
/* By the names that every C library has: musl's newer versions know these only for programs that are linked with them. */
CP_EXPORT ssize_t preadv64(int fd, const struct iovec *v, int n, off_t o) { return preadv(fd, v, n, o); }
CP_EXPORT ssize_t pwritev64(int fd, const struct iovec *v, int n, off_t o) { return pwritev(fd, v, n, o); }
CP_EXPORT ssize_t preadv64v2(int fd, const struct iovec *v, int n, off_t o, int f) { return preadv2(fd, v, n, o, f); }
CP_EXPORT ssize_t pwritev64v2(int fd, const struct iovec *v, int n, off_t o, int f) { return pwritev2(fd, v, n, o, f); }

CP_EXPORT ssize_t sendmsg(int fd, const struct msghdr *m, int flags) {
  NEXT(sendmsg);
  if (!m || !any_bounced(m->msg_iov, m->msg_iovlen)) return next_sendmsg(fd, m, flags);
  struct vector *t = vector_new(m->msg_iov, (int)m->msg_iovlen, true);
  if (!t) return -1;
  struct msghdr copy = *m;
  copy.msg_iov = t->part;
  return vector_end(t, m->msg_iov, (int)m->msg_iovlen, next_sendmsg(fd, &copy, flags), false);
}
CP_EXPORT ssize_t recvmsg(int fd, struct msghdr *m, int flags) {
  NEXT(recvmsg);
  if (!m || !any_bounced(m->msg_iov, m->msg_iovlen)) return next_recvmsg(fd, m, flags);
  struct iovec *original = m->msg_iov;
  struct vector *t = vector_new(original, (int)m->msg_iovlen, false);
  if (!t) return -1;
  m->msg_iov = t->part;
  ssize_t n = next_recvmsg(fd, m, flags);
  m->msg_iov = original;
  return vector_end(t, original, (int)m->msg_iovlen, n, true);
}

/* ---- stdio: libc's own inner calls are out of reach ------------------------------------------------------------------- */

/* read() is implemented with size 1, so that partial items behave as in libc. */
typedef size_t (*item_fn)(void *, size_t, size_t, FILE *);

static size_t items(void *p, size_t size, size_t count, FILE *f, bool in, item_fn next) {
  size_t total = size * count, done = 0;
  size_t chunk = total < CHUNK ? total : CHUNK;
  char *buffer = total ? buffer_new(chunk) : NULL;
  while (buffer && done < total) {
    size_t want = total - done < chunk ? total - done : chunk;
    if (!in) memcpy(buffer, (char *)p + done, want);
    size_t n = next(buffer, 1, want, f);
    if (in) memcpy((char *)p + done, buffer, n);
    done += n;
    if (n < want) break;
  }
  buffer_drop(buffer, chunk);
  return size ? done / size : 0;
}

CP_EXPORT size_t fread(void *p, size_t size, size_t count, FILE *f) {
  NEXT(fread);
  return bounced(p) ? items(p, size, count, f, true, next_fread) : next_fread(p, size, count, f);
}
CP_EXPORT size_t fread_unlocked(void *p, size_t size, size_t count, FILE *f) {
  NEXT(fread_unlocked);
  return bounced(p) ? items(p, size, count, f, true, next_fread_unlocked) : next_fread_unlocked(p, size, count, f);
}
CP_EXPORT size_t fwrite(const void *p, size_t size, size_t count, FILE *f) {
  NEXT(fwrite);
  return bounced(p) ? items((void *)p, size, count, f, false, (item_fn)next_fwrite) : next_fwrite(p, size, count, f);
}
CP_EXPORT size_t fwrite_unlocked(const void *p, size_t size, size_t count, FILE *f) {
  NEXT(fwrite_unlocked);
  return bounced(p) ? items((void *)p, size, count, f, false, (item_fn)next_fwrite_unlocked)
                    : next_fwrite_unlocked(p, size, count, f);
}

/* ---- what _FORTIFY_SOURCE turns these calls into ------------------------------------------------------------------------ */

extern void __chk_fail(void) __attribute__((noreturn, weak)); /* glibc's */
ssize_t __read_chk(int, void *, size_t, size_t);
ssize_t __pread_chk(int, void *, size_t, off_t, size_t);
ssize_t __pread64_chk(int, void *, size_t, off_t, size_t);
ssize_t __recv_chk(int, void *, size_t, size_t, int);
ssize_t __recvfrom_chk(int, void *, size_t, size_t, int, struct sockaddr *, socklen_t *);
size_t __fread_chk(void *, size_t, size_t, size_t, FILE *);
size_t __fread_unlocked_chk(void *, size_t, size_t, size_t, FILE *);

static _Noreturn void too_little_room(void) {
  if (__chk_fail) __chk_fail();
  abort();
}

CP_EXPORT ssize_t __read_chk(int fd, void *p, size_t n, size_t room) {
  if (n > room) too_little_room();
  return read(fd, p, n);
}
CP_EXPORT ssize_t __pread_chk(int fd, void *p, size_t n, off_t at, size_t room) {
  if (n > room) too_little_room();
  return pread(fd, p, n, at);
}
CP_EXPORT ssize_t __pread64_chk(int fd, void *p, size_t n, off_t at, size_t room) {
  if (n > room) too_little_room();
  return pread(fd, p, n, at);
}
CP_EXPORT ssize_t __recv_chk(int fd, void *p, size_t n, size_t room, int flags) {
  if (n > room) too_little_room();
  return recv(fd, p, n, flags);
}
CP_EXPORT ssize_t __recvfrom_chk(int fd, void *p, size_t n, size_t room, int flags, struct sockaddr *from,
                                 socklen_t *length) {
  if (n > room) too_little_room();
  return recvfrom(fd, p, n, flags, from, length);
}
CP_EXPORT size_t __fread_chk(void *p, size_t room, size_t size, size_t count, FILE *f) {
  if (size && count > room / size) too_little_room();
  return fread(p, size, count, f);
}
CP_EXPORT size_t __fread_unlocked_chk(void *p, size_t room, size_t size, size_t count, FILE *f) {
  if (size && count > room / size) too_little_room();
  return fread_unlocked(p, size, count, f);
}
