/* Work that the emulated GPU is asked for and does not do: null kernels of PyTorch's, products of cuBLAS, calls that do
 * not exist here.  libcuda.so.1 counts it, and ends a process whose results nobody recomputes.
 *
 * EMULATOR_RESULTS=1   null work outside of an operator ends the process: a line on stderr that names it, then abort()
 * EMULATOR_UNEXPECTED  file to which the name of each unexpected call is appended when it is made first in a process
 *
 * May include: nothing but the standard library. */
#ifndef CARPOOL_NULL_WORK_H
#define CARPOOL_NULL_WORK_H
#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(default)

/* The calling thread has asked for work that computes nothing. */
void emulator_null_work(const char *name);

/* What the calling thread computes from now on; NULL: nothing that is recomputed.  Returns the previous one.  The text is
 * not copied: it must stay as it is until it is replaced. */
const char *emulator_operator(const char *name);

/* How often the calling thread has asked for null work, since it began. */
uint64_t emulator_null_count(void);

/* A function that is not implemented has been called. */
void emulator_unexpected(const char *function);

/* How many such calls this process has made.  `names` (may be NULL) gets the functions' names with commas between them,
 * each once, as many as fit whole into `size` bytes with the final zero. */
uint64_t emulator_unexpected_calls(char *names, size_t size);

/* A null module knows no sizes: whoever loads it (the CUDA runtime) tells those of its variables before cuModuleGetGlobal. */
struct CUmod_st;
void emulator_variable(struct CUmod_st *module, const char *name, size_t bytes);

#pragma GCC visibility pop
#endif
