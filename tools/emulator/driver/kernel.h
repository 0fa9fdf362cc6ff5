/* Functions of modules, and the kernels behind them. */
#ifndef CARPOOL_STUB_KERNEL_H
#define CARPOOL_STUB_KERNEL_H
#include "stub.h"

enum { STUB_PARAMS = 4 };
struct stub_kernel {
  const char *name;
  CUresult (*run)(uint64_t *p);
  unsigned char sizes[STUB_PARAMS];
};
const struct stub_kernel *stub_kernel_named(const char *name); /* of the module "stub"; NULL: it has no such kernel */

struct CUfunc_st {
  const struct stub_kernel *kernel; /* NULL: a null kernel */
  CUmodule module;
  int dynamic_shared, carveout, nonportable_cluster; /* attributes that can be set */
  CUfunction next;
  char name[];
};
struct stub_op *stub_null_op(void);
CUresult stub_module_load(CUmodule module); /* at its first launch */
#endif
