/* What the emulated libraries share; every function that generate.py writes uses it.
 *
 * Arguments arrive as register-wide integers: in the calling conventions of x86-64 and aarch64 these are the same for
 * numbers and pointers, and floating-point arguments travel beside them without taking their places. */
#ifndef EMULATOR_LIBRARY_H
#define EMULATOR_LIBRARY_H
#include "cuda/driver/driver.h"
#include "null_work.h"
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
/* Bytes that every function asks for that is asked for its workspace: little, so that it does not matter, but not none. */
#define WORKSPACE 4096
#define KEPT 4 /* the most values that a handle keeps */

/* What a caller holds by a handle: values by which functions of the library know each other.  The first is a stream. */
struct object { uintptr_t kept[KEPT]; };

/* One of a library's computations; the driver knows it as a kernel that does nothing. */
struct computation {
  const char *name;
  unsigned long long context; /* where `function` is valid; 0: not looked up */
  CUfunction function;
};
/* Puts the computation into the stream.  False: the driver has refused it. */
bool compute(struct computation *computation, uintptr_t stream);

/* Objects that callers hold by a number instead of a pointer.  The lowest is 1. */
int number_of(struct object *object);
struct object *numbered(uintptr_t number);
void forget_number(uintptr_t number);

static inline struct object *object_at(uintptr_t handle) { return (struct object *)handle; }
static inline void keep(struct object *object, int slot, uintptr_t value) {
  if (object) object->kept[slot] = value;
}
static inline uintptr_t kept(const struct object *object, int slot) { return object ? object->kept[slot] : 0; }

/* Out-parameters: a null pointer means that the caller does not want to know. */
static inline void write_bytes(uintptr_t to, const void *from, size_t bytes) {
  if (to) memcpy((void *)to, from, bytes);
}
static inline void write_int(uintptr_t to, uintptr_t value) { write_bytes(to, &(int){(int)value}, sizeof(int)); }
static inline void write_long(uintptr_t to, uintptr_t value) { write_bytes(to, &value, sizeof value); }

/* What a library says of a status. */
static inline const char *status_text(uintptr_t status, int refusal) {
  if (!(unsigned)status) return "success";
  return (int)status == refusal ? "not supported by the emulated GPU" : "an error of the emulated GPU's library";
}
#endif
