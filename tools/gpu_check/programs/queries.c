/* Preloaded, it writes down what is asked of cuGetProcAddress_v2, and jumps on to the driver: a line "name version flags
 * pointer" for each query, in the file $QUERIES.  Only what is found by dlsym comes this way: CUDA runtimes do. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ASK "cuGetProcAddress_v2"

typedef int (*ask_fn)(const char *, void **, int, unsigned long long, int *);
typedef void *(*dlsym_fn)(void *, const char *);

static ask_fn driver;

static void note(const char *name, int version, unsigned long long flags, const void *pointer) {
  const char *path = getenv("QUERIES");
  int file = path ? open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600) : -1;
  if (file < 0) return;
  dprintf(file, "%s %d %llu %lu\n", name, version, flags, (unsigned long)pointer);
  close(file);
}

static int asked(const char *name, void **function, int version, unsigned long long flags, int *status) {
  int result = driver(name, function, version, flags, status);
  note(name, version, flags, result || !function ? NULL : *function);
  if (!result && function && *function == (void *)driver) *function = (void *)asked; /* it is asked for, too */
  return result;
}

static dlsym_fn libc(void) {
  static dlsym_fn found;
  static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.17", "GLIBC_2.2.5"};
  for (size_t i = 0; !found && i < sizeof versions / sizeof *versions; i++)
    found = (dlsym_fn)dlvsym(RTLD_NEXT, "dlsym", versions[i]);
  return found;
}

static void *swapped(void *handle, const char *name) {
  driver = (ask_fn)libc()(handle, name);
  return driver ? (void *)asked : NULL;
}

/* The jump leaves libc its caller's return address, by which RTLD_NEXT knows who asks: needs -O2. */
void *dlsym(void *restrict handle, const char *restrict name) {
  return (name && !strcmp(name, ASK) ? swapped : libc())(handle, name);
}
