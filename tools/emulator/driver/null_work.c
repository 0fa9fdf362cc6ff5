/* Counts what is asked for and not done: see null_work.h. */
#define _GNU_SOURCE
#include "null_work.h"
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool results; /* EMULATOR_RESULTS */
static __thread uint64_t count __attribute__((tls_model("initial-exec")));
static __thread const char *computing __attribute__((tls_model("initial-exec")));

__attribute__((constructor)) static void read_environment(void) {
  const char *value = getenv("EMULATOR_RESULTS");
  results = value && !strcmp(value, "1");
}

void emulator_null_work(const char *name) {
  count++;
  if (!results || computing) return;
  fprintf(stderr,
          "emulated GPU: %s computes nothing, and no operator that is recomputed has asked for it: use PyTorch's own "
          "operators instead of kernels made by Triton or by extensions, or EMULATOR_RESULTS=0, with which no kernel computes\n",
          name);
  abort();
}

const char *emulator_operator(const char *name) {
  const char *previous = computing;
  computing = name;
  return previous;
}

uint64_t emulator_null_count(void) { return count; }

struct unexpected {
  struct unexpected *next;
  char name[];
};
static struct unexpected *unexpected;
static uint64_t unexpected_calls;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* At once, because a process may end without its exit handlers; one write, because several processes share the file. */
static void report(const char *name) {
  const char *path = getenv("EMULATOR_UNEXPECTED");
  if (!path) return;
  int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  char line[256];
  int length = snprintf(line, sizeof line, "%.254s\n", name);
  if (fd < 0 || write(fd, line, (size_t)length) != length) {
    fprintf(stderr, "emulated GPU: EMULATOR_UNEXPECTED=%s: %m\n", path);
    abort();
  }
  close(fd);
}

void emulator_unexpected(const char *function) {
  pthread_mutex_lock(&lock);
  unexpected_calls++;
  struct unexpected **at = &unexpected;
  while (*at && strcmp((*at)->name, function)) at = &(*at)->next;
  if (!*at) {
    *at = calloc(1, sizeof **at + strlen(function) + 1);
    strcpy((*at)->name, function);
    report(function);
  }
  pthread_mutex_unlock(&lock);
}

uint64_t emulator_unexpected_calls(char *names, size_t size) {
  size_t length = 0;
  pthread_mutex_lock(&lock);
  uint64_t calls = unexpected_calls;
  for (struct unexpected *at = unexpected; names && at && length + strlen(at->name) + 2 <= size; at = at->next)
    length += (size_t)sprintf(names + length, "%s%s", length ? "," : "", at->name);
  pthread_mutex_unlock(&lock);
  if (names && size && !length) *names = 0;
  return calls;
}
