/* Core dumps leave out the memory of tensors.  For a dump the kernel fills every hole of a mapped file with a page: a job
 * that crashed would take memory as large as all its windows, far beyond what it was granted, and write as much. */
#ifndef CARPOOL_CORE_DUMP_H
#define CARPOOL_CORE_DUMP_H
#include "base/common.h"

#include <sys/mman.h>

/* Whole pages of one mapping or several; errno stays.  A mapping that the kernel moves or enlarges keeps this, a new one in
 * its place does not have it.  Every kernel that Carpool runs on can do it; elsewhere cores would be larger, and no more. */
static inline void cp_leave_out_of_cores(void *memory, size_t bytes) {
  int saved = errno;
  cp_add(&cp_syscalls, 1);
  cp_madvise(memory, bytes, MADV_DONTDUMP);
  errno = saved;
}
#endif
