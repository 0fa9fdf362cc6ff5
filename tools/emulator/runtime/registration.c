/* What compiled libraries register when they are loaded, possibly long before the driver is initialised, and from several
 * threads.  A symbol stands in a table by the address of its shadow on the host; nothing leaves it, but symbols of an
 * unloaded library are not found, and one that is loaded at the same address comes before them. */
#include "internal.h"
#include <stdio.h>
#include <stdlib.h>

enum { BUCKET_BITS = 16, BUCKETS = 1 << BUCKET_BITS };
struct runtime_table { struct runtime_symbol *bucket[BUCKETS]; };
struct runtime_table runtime_functions, runtime_variables;

static struct runtime_symbol **bucket_of(struct runtime_table *table, const void *host) {
  return &table->bucket[(uintptr_t)host * 0x9e3779b97f4a7c15u >> (64 - BUCKET_BITS)];
}

void runtime_add(struct runtime_table *table, struct runtime_symbol *symbol) {
  struct runtime_symbol **bucket = bucket_of(table, symbol->host);
  symbol->next = __atomic_load_n(bucket, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(bucket, &symbol->next, symbol, true, __ATOMIC_RELEASE, __ATOMIC_RELAXED)) continue;
}

struct runtime_symbol *runtime_find(struct runtime_table *table, const void *host) {
  struct runtime_symbol *symbol = __atomic_load_n(bucket_of(table, host), __ATOMIC_ACQUIRE);
  while (symbol && (symbol->host != host || __atomic_load_n(&symbol->image->gone, __ATOMIC_RELAXED))) symbol = symbol->next;
  return symbol;
}

/* What nvcc puts beside a library's device code. */
struct wrapper { int magic, version; const void *code; void *more; };
enum { WRAPPER_MAGIC = 0x466243b1 };

void **__cudaRegisterFatBinary(void *wrapper) {
  const struct wrapper *given = wrapper;
  if (given->magic != WRAPPER_MAGIC) {
    fprintf(stderr, "CUDA runtime of the emulated GPU: not a wrapper of device code: magic %#x\n", (unsigned)given->magic);
    abort();
  }
  struct runtime_image *image = calloc(1, sizeof *image);
  image->code = given->code;
  return (void **)image;
}
void __cudaRegisterFatBinaryEnd(void **handle) { (void)handle; }
/* Other threads may still compute when a process ends, so the code stays loaded. */
void __cudaUnregisterFatBinary(void **handle) {
  __atomic_store_n(&((struct runtime_image *)handle)->gone, true, __ATOMIC_RELAXED);
}
char __cudaInitModule(void **handle) {
  (void)handle;
  return 1;
}
