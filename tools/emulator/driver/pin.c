/* What a pin does to the pages of this process.  A real driver pins for long (FOLL_LONGTERM): all pages are there from
 * then on, and those of a private mapping of a file are the process's own copies. */
#define _GNU_SOURCE
#include "stub.h"
#include <limits.h>
#include <stdio.h>
#include <sys/mman.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

struct mapping {
  char *begin, *end;
  int prot;
  bool shared;
};

static bool next_mapping(FILE *maps, struct mapping *m) {
  char line[PATH_MAX + 128], mode[5];
  if (!fgets(line, sizeof line, maps)) return false;
  if (sscanf(line, "%p-%p %4s", (void **)&m->begin, (void **)&m->end, mode) != 3) return false;
  m->prot = (mode[0] == 'r' ? PROT_READ : 0) | (mode[1] == 'w' ? PROT_WRITE : 0) | (mode[2] == 'x' ? PROT_EXEC : 0);
  m->shared = mode[3] == 's';
  return true;
}

/* Nothing is written here, but a page that could be is the process's own afterwards. */
static bool populate(const struct mapping *m, char *at, size_t bytes, bool write) {
  if (!(m->prot & (write ? PROT_WRITE : PROT_READ))) return false;
  if (m->prot & PROT_WRITE) return !madvise(at, bytes, MADV_POPULATE_WRITE);
  if (m->shared) return !madvise(at, bytes, MADV_POPULATE_READ);
  if (mprotect(at, bytes, m->prot | PROT_WRITE)) return false;
  bool good = !madvise(at, bytes, MADV_POPULATE_WRITE);
  return !mprotect(at, bytes, m->prot) && good;
}

bool stub_pin(char *memory, size_t bytes, bool write) {
  char *at = memory - (size_t)memory % 4096, *end = at + stub_round((size_t)(memory + bytes - at), 4096);
  struct mapping m = {.end = at};
  FILE *maps = fopen("/proc/self/maps", "re");
  for (bool good = maps; good && at < end && next_mapping(maps, &m);) {
    if (m.end <= at) continue;
    char *to = m.end < end ? m.end : end;
    good = m.begin <= at && populate(&m, at, (size_t)(to - at), write);
    if (good) at = to;
  }
  if (maps) fclose(maps);
  return at == end;
}
