/* Processes that communicate by NCCL wait for each other on their devices, so they must compute at the same time.
 * The calls that begin a communicator of several ranks pass through here, and the daemon is told.
 *
 * A process may have several NCCLs, PyTorch's and a plugin's say, and each caller is to reach its own.  A call that
 * is linked goes to what its name means in the caller's library.  For pointers that dlsym finds there are a few
 * wrappers of each call, one for each function behind; when they are used up, a pointer passes, and the daemon is
 * told at once.  NCCL that is linked statically into a library is not seen.  The declarations are our own: of what is
 * passed on only the size matters. */
#include "cuda/gate.h"

#include <string.h>

#define SYSTEM_ERROR 2 /* ncclSystemError */
#define MOST 4         /* functions of one name; EACH has as many numbers */

/* Name, parameters with the number of ranks among them, arguments. */
#define CALLS(X) \
  X(ncclCommInitRank, (void **communicator, int ranks, struct nccl_id id, int rank), \
    (communicator, ranks, id, rank)) \
  X(ncclCommInitRankConfig, (void **communicator, int ranks, struct nccl_id id, int rank, void *config), \
    (communicator, ranks, id, rank, config)) \
  X(ncclCommInitRankScalable, (void **communicator, int ranks, int rank, int ids, void *id, void *config), \
    (communicator, ranks, rank, ids, id, config)) \
  X(ncclCommInitAll, (void **communicators, int ranks, const int *devices), (communicators, ranks, devices))
#define EACH(X, ...) X(0, __VA_ARGS__) X(1, __VA_ARGS__) X(2, __VA_ARGS__) X(3, __VA_ARGS__)

struct nccl_id {
  char bytes[128];
};

#define NUMBER(symbol, ...) NUMBER_##symbol,
enum { CALLS(NUMBER) CALL_COUNT };

static void *behind[CALL_COUNT][MOST]; /* each wrapper; filled from the first on, and never changed */

/* From a jump at the end of a function the address is that of the function's caller: in the same scope, as a rule. */
#define LINKED(symbol) cp_meant_by(__builtin_return_address(0), #symbol)
#define FORM(suffix, symbol, function, parameters, arguments) \
  static int gate_##symbol##suffix parameters { \
    int(*real) parameters; \
    *(void **)&real = function; \
    if (ranks > 1) cp_traits(CP_TRAIT_COLLECTIVE); \
    return real ? real arguments : SYSTEM_ERROR; \
  }
#define NUMBERED(i, symbol, ...) FORM(_##i, symbol, cp_load(&behind[NUMBER_##symbol][i]), __VA_ARGS__)
#define WRAPPERS(symbol, ...) \
  EACH(NUMBERED, symbol, __VA_ARGS__) \
  FORM(, symbol, LINKED(symbol), __VA_ARGS__) \
  CP_LINKED(gate_##symbol, , #symbol "@CARPOOL");
CALLS(WRAPPERS)

#define POINTER(i, symbol) (void *)gate_##symbol##_##i,
#define ENTRY(symbol, ...) {#symbol, {EACH(POINTER, symbol)}},
static const struct {
  const char *name;
  void *wrappers[MOST];
} calls[CALL_COUNT] = {CALLS(ENTRY)};

/* The wrapper before a function of the call; NULL: there is none left. */
static void *wrapper_of(uint32_t call, void *function) {
  for (uint32_t i = 0; i < MOST; i++) {
    void *there = NULL;
    if (__atomic_compare_exchange_n(&behind[call][i], &there, function, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST) ||
        there == function)
      return calls[call].wrappers[i];
  }
  return NULL;
}

void *cp_nccl_swap(const char *name, void *pointer) {
  for (uint32_t i = 0; i < CALL_COUNT; i++) {
    if (strcmp(calls[i].name, name) != 0) continue;
    void *wrapper = wrapper_of(i, pointer);
    if (!wrapper) cp_traits(CP_TRAIT_COLLECTIVE);
    return wrapper ? wrapper : pointer;
  }
  return pointer;
}
