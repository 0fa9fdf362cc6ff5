/* Programs without Python attach by themselves.
 *
 * On a GPU such a process is pending from its first cuInit on, on a host device once a library is mapped whose memory is
 * the device's (libggml-base.so, that of llama.cpp).  It says HELLO when it is about to use its device, so a shell, a
 * launcher or a helper that uses none never takes the seat.  An engine's processes do the same whether they have Python
 * or not; in other jobs the runtime decides for Python (src/carpool/runtime/site), which knows its workers.
 *
 * Libraries are looked for with a larger allocation, and not in dlopen(), which searches by who has called it.  What is
 * allocated before this library's constructor has run is the process's own. */
#include "base/libc.h"
#include "base/process.h"

#include <dlfcn.h>
#include <link.h>
#include <stdlib.h>

#define LEAST_CLAIM CP_MIB /* what lists the tensors of a file is smaller, and no use of the device */

uint32_t cp_looks;
size_t cp_least_claim;
static uint32_t found;           /* pending by a library that is mapped */
static unsigned long long looked; /* at so many libraries that have been mapped so far */

static bool is_set(const char *name) {
  const char *value = getenv(name);
  return value && *value;
}

/* Linked, or in the program itself. */
static bool has_python(void) { return dlsym(RTLD_DEFAULT, "Py_IsInitialized") != NULL; }

bool cp_attaches_itself(void) {
  if (!is_set("CARPOOL_JOB") || !is_set("CARPOOL_HOME") || cp_disabled()) return false;
  return is_set("CARPOOL_ENGINE") || !has_python();
}

static int count_adds(struct dl_phdr_info *info, size_t size, void *adds) {
  (void)size;
  *(unsigned long long *)adds = info->dlpi_adds;
  return 1;
}

static bool more_are_mapped(void) {
  unsigned long long adds = 0;
  dl_iterate_phdr(count_adds, &adds);
  return __atomic_exchange_n(&looked, adds, __ATOMIC_SEQ_CST) != adds;
}

static void note_found(void) {
  cp_store(&found, 1);
  cp_store(&cp_least_claim, LEAST_CLAIM);
}

void cp_look_for_library(void) {
  if (cp_load(&cp.attached) || cp_load(&cp.pending)) cp_store(&cp_looks, 0); /* PyTorch has come first */
  if (more_are_mapped() && cp_find_ggml()) cp_handoff_begin(&cp_looks, note_found);
}

/* It may be the one that computes. */
void cp_look_in_child(void) {
  if (!cp_load(&found)) return;
  cp_handoff_leave_channel();
  cp_store(&found, 0);
  cp_store(&looked, 0);
  cp_store(&cp_looks, 1);
}

__attribute__((constructor)) static void start(void) {
  if (!is_set("CARPOOL_CUDA_DEVICE") && cp_attaches_itself()) cp_store(&cp_looks, 1);
}
