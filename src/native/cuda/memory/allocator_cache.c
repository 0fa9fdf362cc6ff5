/* cudaMalloc, for PyTorch's caching allocator: where memory is short the allocator gives back its cache, then waits.
 *
 * The allocator does so by itself when cudaMalloc fails.  But PyTorch 2.13 writes a warning about each failure into the
 * job's output, and without caching a failure is final.  So a refusal (segments.c) ends here: the cache is emptied in the
 * thread that has asked, for which the allocator's lock is recursive, and cudaMalloc is called again.  That happens
 * outside of the runtime, which may hold locks of its own inside.
 *
 * emptyCache is a virtual function.  libtorch_cuda exports another class of the same interface with its table of
 * virtual functions: the function has one position in both tables.  Where a name is missing, the failure is passed on. */
#include "cuda/memory/grant.h"

#include <dlfcn.h>
#include <link.h>

#pragma weak dladdr1 /* musl has none */

#define OUT_OF_MEMORY 2  /* cudaErrorMemoryAllocation */
#define NO_RUNTIME 3     /* cudaErrorInitializationError */
#define TABLE_HEADER 2   /* words before the first virtual function */
#define ALLOCATOR "_ZN3c104cuda20CUDACachingAllocator9allocatorE"
#define LIBRARY "libtorch_cuda.so"
#define TABLE "_ZTVN5torch4cuda22CUDAPluggableAllocator22CUDAPluggableAllocatorE"
#define EMPTY_CACHE "_ZN5torch4cuda22CUDAPluggableAllocator22CUDAPluggableAllocator10emptyCacheESt4pairIyyE"

typedef int malloc_call(void **address, size_t bytes);
typedef int last_error_call(void);
typedef void empty_cache_call(void *allocator, uint64_t pool, uint64_t number); /* 0, 0: of all pools */

/* References have the version of their runtime, or none. */
static malloc_call gate_cudaMalloc;
CP_LINKED(gate_cudaMalloc, , "cudaMalloc@CARPOOL");
CP_LINKED(gate_cudaMalloc, 11, "cudaMalloc@libcudart.so.11.0");
CP_LINKED(gate_cudaMalloc, 12, "cudaMalloc@libcudart.so.12");
CP_LINKED(gate_cudaMalloc, 13, "cudaMalloc@libcudart.so.13");

bool cp_malloc_ours(const void *pointer) { return pointer == (const void *)gate_cudaMalloc; }

/* What the name means to the library in which the address lies. */
static void *meant_by(const void *address, const char *name) {
  Dl_info info;
  void *library = dladdr(address, &info) ? dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD) : NULL;
  void *found = library ? cp_next_dlsym(library, name) : NULL;
  if (library) dlclose(library);
  return found ? found : cp_next_dlsym(RTLD_NEXT, name);
}

/* A process may have several runtimes. */
static malloc_call *runtime_of(const void *caller) {
  static __thread const void *latest __attribute__((tls_model("initial-exec")));
  static __thread malloc_call *found __attribute__((tls_model("initial-exec")));
  if (CP_LIKELY(latest == caller)) return found;
  found = (malloc_call *)meant_by(caller, "cudaMalloc");
  latest = caller;
  return found;
}

static uint32_t position(void *const *table, const void *function) {
  Dl_info info;
  const ElfW(Sym) *symbol = NULL;
  if (!table || !function || !dladdr1 || !dladdr1(table, &info, (void **)&symbol, RTLD_DL_SYMENT) || !symbol)
    return 0;
  for (uint32_t i = TABLE_HEADER; i < symbol->st_size / sizeof *table; i++)
    if (table[i] == function) return i;
  return 0;
}

/* Among the virtual functions' words; 0: there is no such library. */
static uint32_t position_of_empty_cache(void) {
  static uint32_t known;
  void *library = known ? NULL : dlopen(LIBRARY, RTLD_LAZY | RTLD_NOLOAD);
  if (!library) return cp_load(&known);
  cp_store(&known, position(cp_next_dlsym(library, TABLE), cp_next_dlsym(library, EMPTY_CACHE)));
  dlclose(library);
  return cp_load(&known);
}

static bool empty_cache(const void *caller) {
  empty_cache_call *const **const *allocator = meant_by(caller, ALLOCATOR);
  uint32_t at = position_of_empty_cache();
  if (!at || !allocator || !*allocator) return false;
  (**allocator)[at - TABLE_HEADER]((void *)*allocator, 0, 0);
  return true;
}

static void forget_error(const void *caller) {
  last_error_call *call = (last_error_call *)meant_by(caller, "cudaGetLastError");
  if (call) call();
}

static int gate_cudaMalloc(void **address, size_t bytes) {
  const void *caller = __builtin_return_address(0);
  malloc_call *real = runtime_of(caller);
  int r = real ? real(address, bytes) : NO_RUNTIME;
  if (CP_LIKELY(r != OUT_OF_MEMORY) || !cp_segment_refused() || !empty_cache(caller)) return r;
  forget_error(caller);
  return real(address, bytes);
}
