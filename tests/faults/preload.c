// Calls of the C library that SQLite makes on the journal's files, some of which fail.  Preloaded into the nursery;
// `inject.py` says what is to fail, and where all calls are noted, in the form of its own notes.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define SHORT (-1)  // half of it is done
#define MOST 64

struct Call {
  char stage[16], name[24], file[64];
  long number;  // counted so far; of a planned one, which is to fail
  int error;
};

static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
static int trace = -1;
static char process[24], stage[16];
static struct Call counted[MOST], planned[MOST];
static int counted_n, planned_n;

EXPORT void carpool_test_io_begin(const char *name, const char *path) {
  snprintf(process, sizeof process, "%s", name);
  trace = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
}

EXPORT void carpool_test_io_stage(const char *name) { snprintf(stage, sizeof stage, "%s", name); }

EXPORT void carpool_test_io_fail(const char *when, const char *name, const char *file, long number, int error) {
  if (planned_n == MOST) return;
  struct Call *call = &planned[planned_n++];
  snprintf(call->stage, sizeof call->stage, "%s", when);
  snprintf(call->name, sizeof call->name, "%s", name);
  snprintf(call->file, sizeof call->file, "%s", file);
  call->number = number;
  call->error = error;
}

static int is(const struct Call *call, const char *name, const char *file) {
  return !strcmp(call->stage, stage) && !strcmp(call->name, name) && !strcmp(call->file, file);
}

static long count(const char *name, const char *file) {
  for (int n = 0; n < counted_n; n++)
    if (is(&counted[n], name, file)) return ++counted[n].number;
  if (counted_n == MOST) return 0;
  struct Call *call = &counted[counted_n++];
  snprintf(call->stage, sizeof call->stage, "%s", stage);
  snprintf(call->name, sizeof call->name, "%s", name);
  snprintf(call->file, sizeof call->file, "%s", file);
  return call->number = 1;
}

static const char *kind_of(int error) {
  switch (error) {
  case SHORT: return "\"short\"";
  case ENOSPC: return "\"ENOSPC\"";
  case EIO: return "\"EIO\"";
  case EINTR: return "\"EINTR\"";
  default: return "\"EMFILE\"";
  }
}

static void note(const char *name, const char *file, long number, int error) {
  char line[256];
  int size = snprintf(line, sizeof line, "[\"%s\", \"%s\", \"%s\", \"%s\", %ld, %s]\n", process, stage, name, file,
                      number, error ? kind_of(error) : "null");
  syscall(SYS_write, trace, line, (size_t)size);
}

// What is to become of a call on a file of the journal: 0, an error, or `SHORT`.
static int due(const char *name, const char *path) {
  const char *file = strstr(path, "journal.sqlite");
  if (trace < 0 || file == NULL) return 0;
  pthread_mutex_lock(&gate);
  long number = count(name, file);
  int error = 0;
  for (int n = 0; n < planned_n; n++)
    if (is(&planned[n], name, file) && planned[n].number == number) error = planned[n].error;
  note(name, file, number, error);
  pthread_mutex_unlock(&gate);
  return error;
}

static int due_of(const char *name, int fd) {
  char link[32], path[512];
  if (trace < 0) return 0;
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t size = readlink(link, path, sizeof path - 1);
  if (size <= 0) return 0;
  path[size] = 0;
  return due(name, path);
}

#define REAL(type, name, ...) ((type(*)(__VA_ARGS__))dlsym(RTLD_NEXT, name))
#define FAIL(error) return errno = (error), -1
#define HALF(size) ((size) > 1 ? (size) / 2 : (size))

#define WRITES(name, ...)                                                        \
  int error = due_of("sqlite write", fd);                                        \
  if (error > 0) FAIL(error);                                                    \
  return REAL(ssize_t, name, int, const void *, size_t, ##__VA_ARGS__)

EXPORT ssize_t write(int fd, const void *data, size_t size) {
  WRITES("write")(fd, data, error == SHORT ? HALF(size) : size);
}

EXPORT ssize_t pwrite(int fd, const void *data, size_t size, off_t offset) {
  WRITES("pwrite", off_t)(fd, data, error == SHORT ? HALF(size) : size, offset);
}

EXPORT ssize_t pwrite64(int fd, const void *data, size_t size, off64_t offset) {
  WRITES("pwrite64", off64_t)(fd, data, error == SHORT ? HALF(size) : size, offset);
}

#define READS(name, ...)                      \
  int error = due_of("sqlite read", fd);      \
  if (error > 0) FAIL(error);                 \
  return REAL(ssize_t, name, int, void *, size_t, ##__VA_ARGS__)

EXPORT ssize_t read(int fd, void *data, size_t size) { READS("read")(fd, data, size); }

EXPORT ssize_t pread(int fd, void *data, size_t size, off_t offset) { READS("pread", off_t)(fd, data, size, offset); }

EXPORT ssize_t pread64(int fd, void *data, size_t size, off64_t offset) {
  READS("pread64", off64_t)(fd, data, size, offset);
}

#define SYNCS(name, text)                     \
  int error = due_of(text, fd);               \
  if (error > 0) FAIL(error);                 \
  return REAL(int, name, int)(fd)

EXPORT int fsync(int fd) { SYNCS("fsync", "sqlite fsync"); }

EXPORT int fdatasync(int fd) { SYNCS("fdatasync", "sqlite fsync"); }

EXPORT int ftruncate(int fd, off_t size) {
  int error = due_of("sqlite truncate", fd);
  if (error > 0) FAIL(error);
  return REAL(int, "ftruncate", int, off_t)(fd, size);
}

EXPORT int ftruncate64(int fd, off64_t size) {
  int error = due_of("sqlite truncate", fd);
  if (error > 0) FAIL(error);
  return REAL(int, "ftruncate64", int, off64_t)(fd, size);
}

#define OPENS(name)                           \
  va_list more;                               \
  va_start(more, flags);                      \
  int mode = va_arg(more, int);               \
  va_end(more);                               \
  int error = due("sqlite open", path);       \
  if (error > 0) FAIL(error);                 \
  return REAL(int, name, const char *, int, ...)(path, flags, mode)

EXPORT int open(const char *path, int flags, ...) { OPENS("open"); }

EXPORT int open64(const char *path, int flags, ...) { OPENS("open64"); }
