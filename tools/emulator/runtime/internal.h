/* What the parts of the runtime share.
 *
 * Results inside are int: a CUresult or a cudaError_t, whose numbers agree.  There are no locks: whatever a thread adds is
 * complete before an atomic exchange makes it visible, so a forked child never finds one held. */
#ifndef EMULATOR_RUNTIME_INTERNAL_H
#define EMULATOR_RUNTIME_INTERNAL_H
#include "runtime.h"
#include <stdbool.h>
#include <string.h>

enum { RUNTIME_DEVICES = 64 };
static inline CUdeviceptr runtime_address(const void *memory) { return (CUdeviceptr)(uintptr_t)memory; }

/* errors.c: remembers an error as the thread's last one. */
cudaError_t runtime_error(int result);

/* device.c */
int runtime_driver(void); /* the driver is initialised */
int runtime_ready(void);  /* and the thread has a context: the one it chose, or its device's primary one */
int runtime_primary(int device, CUcontext *context);
/* The usual body of a call: what it asks of the driver. */
#define WITH_DRIVER(call) do { int ready_ = runtime_driver(); return runtime_error(ready_ ? ready_ : (int)(call)); } while (0)
#define WITH_CONTEXT(call) do { int ready_ = runtime_ready(); return runtime_error(ready_ ? ready_ : (int)(call)); } while (0)

/* properties.c */
int runtime_properties(struct cudaDeviceProp *properties, int device);

/* registration.c: what libraries have registered, by the address of its shadow on the host. */
struct runtime_image {
  const void *code;
  CUlibrary library; /* NULL: not loaded yet */
  bool gone;
};
struct runtime_symbol {
  const void *host;
  struct runtime_image *image;
  const char *name;
  struct runtime_symbol *next;
};
struct runtime_table;
extern struct runtime_table runtime_functions, runtime_variables;
void runtime_add(struct runtime_table *table, struct runtime_symbol *symbol);
struct runtime_symbol *runtime_find(struct runtime_table *table, const void *host); /* NULL: not registered */

/* kernel.c: what a library's code and a registered function are to the driver; code is loaded if necessary. */
int runtime_library(struct runtime_image *image, CUlibrary *library);
int runtime_kernel(const void *function, CUkernel *kernel);
#endif
