/* Folder base/: what every other folder needs: atomics and locks, the state of the process (process.h), the job
 * channel, and I/O on memory that the kernel may not touch.  Nothing enters that only one kind of device needs.
 * May include: abi, arena, store, turn (the headers of the parts of process.h). */
/* Shared by all parts of libcarpool: atomics, futexes, locks, the process-wide state. */
#ifndef CARPOOL_COMMON_H
#define CARPOOL_COMMON_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <linux/futex.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define CP_EXPORT __attribute__((visibility("default")))
#define CP_LIKELY(x) __builtin_expect(!!(x), 1)
#define CP_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define CP_KIB ((size_t)1 << 10)
#define CP_MIB ((size_t)1 << 20)
#define CP_GIB ((size_t)1 << 30)
#define CP_PAGE ((size_t)4096)
#define CP_FOREIGN_PAGES "Carpool needs a kernel with pages of 4 KiB; this one has larger ones (ARM kernels come in both kinds)"

#define cp_load(p) __atomic_load_n((p), __ATOMIC_SEQ_CST)
#define cp_store(p, v) __atomic_store_n((p), (v), __ATOMIC_SEQ_CST)
#define cp_add(p, v) __atomic_add_fetch((p), (v), __ATOMIC_SEQ_CST)
#define cp_relaxed(p) __atomic_load_n((p), __ATOMIC_RELAXED)
#define cp_put(p, v) __atomic_store_n((p), (v), __ATOMIC_RELAXED)

static inline size_t cp_round_up(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }

static inline uint64_t cp_now_us(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t); /* vDSO: no system call */
  return (uint64_t)t.tv_sec * 1000000u + (uint64_t)t.tv_nsec / 1000u;
}

/* fstat(), which old glibc has by a name of its own only. */
static inline int cp_fstat(int fd, struct stat *status) { return (int)syscall(SYS_fstat, fd, status); }

/* madvise(), which the library interposes itself. */
static inline int cp_madvise(void *p, size_t bytes, int advice) { return (int)syscall(SYS_madvise, p, bytes, advice); }

/* Is it a file of so many bytes?  To touch what lies beyond the end of a mapped file is SIGBUS. */
static inline bool cp_has_bytes(int fd, uint64_t bytes) {
  struct stat status;
  return !cp_fstat(fd, &status) && (uint64_t)status.st_size >= bytes;
}

/* Count of system calls that libcarpool itself makes; a lone job's must not grow with its iterations. */
extern uint64_t cp_syscalls;

/* Sleep while *word == expected, until a wake-up, a signal or the end of the time.
 * Works across processes (no FUTEX_PRIVATE_FLAG).  timeout_us < 0: forever.  Returns 0 or errno. */
static inline int cp_futex_wait(uint32_t *word, uint32_t expected, int64_t timeout_us) {
  struct timespec t = {.tv_sec = timeout_us / 1000000, .tv_nsec = (timeout_us % 1000000) * 1000};
  cp_add(&cp_syscalls, 1);
  long r = syscall(SYS_futex, word, FUTEX_WAIT, expected, timeout_us < 0 ? NULL : &t, NULL, 0);
  return r == 0 ? 0 : errno;
}

static inline void cp_futex_wake(uint32_t *word) {
  cp_add(&cp_syscalls, 1);
  syscall(SYS_futex, word, FUTEX_WAKE, 0x7fffffff, NULL, NULL, 0);
}

#include "base/section.h"
#endif
