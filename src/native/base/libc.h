/* Which C library does the process have?
 *
 * A program of another one than glibc may inherit LD_PRELOAD (musl: a busybox shell, a program of Alpine).  There the
 * library has to load, for a preloaded library that does not ends the program, and it steps aside: what it exports passes
 * calls on to the C library, no handler is installed, no thread is started, and no process attaches.
 *
 * So that musl's loader takes it, the library asks for nothing that only glibc has: such functions are weak symbols, and
 * their callers do without them.  tests/native/test_library.py loads the library into a program of musl. */
#ifndef CARPOOL_LIBC_H
#define CARPOOL_LIBC_H
#include <stdbool.h>

#define CP_FOREIGN_LIBC "Carpool manages programs of glibc only, and the C library of this process is another (musl)"

/* Not glibc, nor musl with functions of glibc's (Alpine's gcompat)? */
bool cp_libc_is_foreign(void);
bool cp_disabled(void); /* CARPOOL_DISABLE is set, or this is not glibc */
/* A function of the C library, looked up without its help: where dlsym is interposed, or may not be called yet.
 * NULL: no library but this one has it. */
void *cp_libc_function(const char *name);
#endif
