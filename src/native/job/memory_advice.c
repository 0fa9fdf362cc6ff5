/* Locks and advice for device memory: neither does anything there.  The kernel would split the mapping, and pieces of a
 * mapping cannot be parked with the whole (arena/arena.c).  What discards content, and all other memory, passes. */
#include "base/process.h"

#include <sys/mman.h>

static inline bool is_device_memory(const void *p) { return CP_UNLIKELY(cp_arenas_hold(&cp.arenas, p)); }

static bool discards(int advice) { return advice == MADV_DONTNEED || advice == MADV_FREE || advice == MADV_REMOVE; }

CP_EXPORT int mlock(const void *p, size_t bytes) { return is_device_memory(p) ? 0 : (int)syscall(SYS_mlock, p, bytes); }

CP_EXPORT int mlock2(const void *p, size_t bytes, unsigned int flags) {
  return is_device_memory(p) ? 0 : (int)syscall(SYS_mlock2, p, bytes, flags);
}

CP_EXPORT int munlock(const void *p, size_t bytes) {
  return is_device_memory(p) ? 0 : (int)syscall(SYS_munlock, p, bytes);
}

CP_EXPORT int madvise(void *p, size_t bytes, int advice) {
  return is_device_memory(p) && !discards(advice) ? 0 : cp_madvise(p, bytes, advice);
}
