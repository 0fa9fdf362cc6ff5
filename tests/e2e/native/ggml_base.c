/* A stand-in for ggml's base library: it has the name by which the memory of tensors is known, and allocates as ggml does. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/mman.h>

void *ggml_aligned_malloc(size_t bytes);
void ggml_aligned_free(void *memory, size_t bytes);

void *ggml_aligned_malloc(size_t bytes) {
  void *memory = NULL;
  if (posix_memalign(&memory, 64, bytes)) return NULL;
  if (bytes >= 1 << 20) madvise(memory, bytes, MADV_HUGEPAGE); /* from within a page on: its result does not matter */
  return memory;
}

void ggml_aligned_free(void *memory, size_t bytes) {
  (void)bytes;
  free(memory);
}
