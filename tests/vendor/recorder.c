/* A driver that finds everything, does nothing (CUDA_ERROR_STUB_LIBRARY), and writes down for what it is asked: name,
 * version and flags of each cuGetProcAddress. */
#include <stdio.h>
#include <string.h>

static int refused(void) { return 34; }

int cuGetProcAddress_v2(const char *name, void **function, int version, unsigned long long flags, int *status) {
  fprintf(stderr, "%s %d %llu\n", name, version, flags);
  if (status) *status = 0;
  *function = strcmp(name, "cuGetProcAddress") ? (void *)refused : (void *)cuGetProcAddress_v2;
  return 0;
}

int cuDriverGetVersion(int *version) {
  *version = 99000; /* newer than every runtime: none is told that its driver is too old */
  return 0;
}
