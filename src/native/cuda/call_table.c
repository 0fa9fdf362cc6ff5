/* Wrappers of the calls that submit work or make their job exclusive, and the table of all entry points. */
#include "cuda/memory/handles.h"

#define CP_WORK(symbol_, version_, own_, stream_, parameters, arguments) \
  CUresult gate_##symbol_ parameters; \
  CUresult symbol_ parameters __attribute__((alias("gate_" #symbol_))); \
  CP_LINKED(gate_##symbol_, , #symbol_ "@CARPOOL"); \
  CUresult gate_##symbol_ parameters { \
    uint64_t leave = 0; \
    struct cp_thread *t = cp_enter(&leave); \
    cp_note_stream(t, stream_, own_); \
    CUresult r = cp_real.symbol_ arguments; \
    cp_leave(t, leave); \
    return r; \
  }
#define CP_ALONE(symbol_, version_, own_, parameters, arguments) \
  CUresult gate_##symbol_ parameters; \
  CUresult symbol_ parameters __attribute__((alias("gate_" #symbol_))); \
  CP_LINKED(gate_##symbol_, , #symbol_ "@CARPOOL"); \
  CUresult gate_##symbol_ parameters { \
    cp_driver_start(); \
    CUresult r = cp_real.symbol_ arguments; \
    if (r == CUDA_SUCCESS) cp_traits(CP_TRAIT_UNGATED); \
    return r; \
  }
#define CP_HOOK(class_, symbol_, version_, own_) extern __typeof__(symbol_) gate_##symbol_ CP_HIDDEN;
#include "cuda/functions.def"

#define CP_WORK(symbol_, version_, own_, ...) \
  {#symbol_, version_, own_, (void *)gate_##symbol_, (void **)&cp_real.symbol_},
#define CP_ALONE(symbol_, version_, own_, ...) CP_WORK(symbol_, version_, own_)
#define CP_HOOK(class_, symbol_, version_, own_) CP_WORK(symbol_, version_, own_)
#define CP_ENTRY(symbol_) {#symbol_, 0, 0, NULL, (void **)&cp_real.symbol_},
const struct cp_entry cp_entries[] = {
#include "cuda/functions.def"
    CP_CALLED(CP_ENTRY)};
const uint32_t cp_entry_count = sizeof cp_entries / sizeof *cp_entries;
