/* Processes that communicate by NCCL wait for each other on their devices, so they must compute at the same time.  The
 * calls that begin a communicator of several ranks pass through here, and the daemon is told.
 *
 * Programs reach them by ELF symbols or by dlsym, as they do the driver.  NCCL that is linked statically into a library is
 * not seen.  The declarations are our own: of what is passed on only the size matters. */
#include "cuda/gate.h"

#include <dlfcn.h>
#include <string.h>

#define LIBRARY "libnccl.so.2"
#define SYSTEM_ERROR 2 /* ncclSystemError */

/* Name, parameters with the number of ranks among them, arguments. */
#define CALLS(X) \
  X(ncclCommInitRank, (void **communicator, int ranks, struct nccl_id id, int rank), \
    (communicator, ranks, id, rank)) \
  X(ncclCommInitRankConfig, (void **communicator, int ranks, struct nccl_id id, int rank, void *config), \
    (communicator, ranks, id, rank, config)) \
  X(ncclCommInitRankScalable, (void **communicator, int ranks, int rank, int ids, void *id, void *config), \
    (communicator, ranks, rank, ids, id, config)) \
  X(ncclCommInitAll, (void **communicators, int ranks, const int *devices), (communicators, ranks, devices))

struct nccl_id {
  char bytes[128];
};

#define NUMBER(symbol, ...) NUMBER_##symbol,
enum { CALLS(NUMBER) CALL_COUNT };

#define NEXT(symbol, ...) [NUMBER_##symbol] = {#symbol, NULL},
static struct {
  const char *name;
  void *real;
} calls[CALL_COUNT] = {CALLS(NEXT)};

/* NCCL may be loaded for everybody, or by one library for itself. */
static void *real_call(uint32_t number) {
  void *found = cp_load(&calls[number].real);
  if (!found) found = cp_next_dlsym(RTLD_NEXT, calls[number].name);
  void *library = found ? NULL : dlopen(LIBRARY, RTLD_LAZY | RTLD_NOLOAD);
  if (library) found = cp_next_dlsym(library, calls[number].name);
  return found;
}

#define WRAPPER(symbol, parameters, arguments) \
  static int gate_##symbol parameters; \
  CP_LINKED(gate_##symbol, , #symbol "@CARPOOL"); \
  static int gate_##symbol parameters { \
    int(*real) parameters; \
    *(void **)&real = real_call(NUMBER_##symbol); \
    if (ranks > 1) cp_traits(CP_TRAIT_COLLECTIVE); \
    return real ? real arguments : SYSTEM_ERROR; \
  }
CALLS(WRAPPER)

#define POINTER(symbol, ...) (void *)gate_##symbol,
static void *const wrappers[CALL_COUNT] = {CALLS(POINTER)};

void *cp_nccl_swap(const char *name, void *pointer) {
  for (uint32_t i = 0; i < CALL_COUNT; i++) {
    if (strcmp(calls[i].name, name) != 0) continue;
    cp_store(&calls[i].real, pointer);
    return wrappers[i];
  }
  return pointer;
}
