/* The driver, and the pointers that programs get for its entry points.
 *
 * Programs reach the driver by ELF symbols (ours come first), by dlsym and by cuGetProcAddress.  For the latter two the
 * real one is asked first, with the caller's version and flags, and only the pointer that it returns is exchanged: one name
 * stands for calls with different parameters, so the name does not tell which wrapper fits. */
#include "base/libc.h"
#include "cuda/gate.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define LIBRARY "libcuda.so.1"
#define MOST_ENTRIES 512u
#define SLOTS 2048u /* several times as many as there are entries */

struct cp_real cp_real;
uint32_t cp_driver_ready;

static struct cp_lock load_lock;
static struct {
  void *real, *wrapper;
} table[SLOTS];

/* ---- the table of pointers ----------------------------------------------------------------------------------------- */

bool cp_driver_ours(const void *pointer) {
  for (uint32_t i = 0; i < cp_entry_count; i++)
    if (cp_entries[i].wrapper && cp_entries[i].wrapper == pointer) return true;
  return false;
}

static uint32_t slot_of(const void *real) {
  uint32_t i = (uint32_t)(((uintptr_t)real >> 2) * 0x9e3779b97f4a7c15ull >> 40) % SLOTS;
  while (table[i].real && table[i].real != real) i = (i + 1) % SLOTS;
  return i;
}

static void learn(void *real, void *wrapper) {
  if (!real || !wrapper || cp_driver_ours(real)) return;
  uint32_t i = slot_of(real);
  if (table[i].real) return; /* two names of one entry point */
  table[i].real = real;
  table[i].wrapper = wrapper;
}

/* ---- the driver ------------------------------------------------------------------------------------------------------ */

/* Called with any parameters, looks at none. */
static CUresult missing(void) { return CUDA_ERROR_NOT_SUPPORTED; }

/* cuMemcpyHtoD_v2 and cuMemcpyHtoD_v2_ptds are both asked for as cuMemcpyHtoD. */
static void asked_for(char *name, size_t size, const char *symbol) {
  size_t n = strlen(symbol);
  if (n > 5 && (!strcmp(symbol + n - 5, "_ptsz") || !strcmp(symbol + n - 5, "_ptds"))) n -= 5;
  if (n > 3 && symbol[n - 3] == '_' && symbol[n - 2] == 'v') n -= 3;
  if (n >= size) n = size - 1;
  memcpy(name, symbol, n);
  name[n] = 0;
}

/* What cuGetProcAddress returns need not be what dlsym does. */
static void *by_version(const struct cp_entry *e) {
  void *pointer = NULL;
  char name[64];
  asked_for(name, sizeof name, e->symbol);
  cuuint64_t flags = e->own ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM : CU_GET_PROC_ADDRESS_LEGACY_STREAM;
  CUresult r = CUDA_ERROR_NOT_FOUND;
  if (cp_real.cuGetProcAddress_v2 != (void *)missing) {
    CUdriverProcAddressQueryResult status;
    r = cp_real.cuGetProcAddress_v2(name, &pointer, e->version, flags, &status);
  } else if (cp_real.cuGetProcAddress != (void *)missing) {
    r = cp_real.cuGetProcAddress(name, &pointer, e->version, flags);
  }
  return r == CUDA_SUCCESS ? pointer : NULL;
}

static void fill(void **found) {
  for (uint32_t i = 0; i < cp_entry_count; i++) {
    void *pointer = found[i] ? found[i] : (void *)missing;
    memcpy(cp_entries[i].real, &pointer, sizeof pointer);
    learn(found[i], cp_entries[i].wrapper);
  }
  for (uint32_t i = 0; i < cp_entry_count; i++) {
    if (!cp_entries[i].wrapper || !cp_entries[i].version) continue;
    void *pointer = by_version(&cp_entries[i]);
    learn(pointer, cp_entries[i].wrapper);
    if (found[i] || !pointer || cp_driver_ours(pointer)) continue;
    memcpy(cp_entries[i].real, &pointer, sizeof pointer);
  }
}

/* The dynamic linker is asked before our lock is taken: a constructor that runs inside of dlopen may call the driver.
 * Two threads may look for the same pointers, then. */
void cp_driver_start(void) {
  if (cp_load(&cp_driver_ready)) return;
  void *found[MOST_ENTRIES] = {NULL};
  int saved = errno;
  void *library = dlopen(LIBRARY, RTLD_LAZY | RTLD_NOLOAD);
  if (!library) library = dlopen(LIBRARY, RTLD_LAZY);
  for (uint32_t i = 0; library && i < cp_entry_count && i < MOST_ENTRIES; i++)
    found[i] = cp_next_dlsym(library, cp_entries[i].symbol);
  cp_acquire(&load_lock);
  if (!cp_load(&cp_driver_ready)) fill(found);
  cp_store(&cp_driver_ready, 1);
  cp_release(&load_lock);
  errno = saved;
}

void cp_driver_forked(void) { cp_reset_lock(&load_lock); }

/* Without the driver nothing is to be exchanged, and we do not load it for a name that merely begins like one of its. */
bool cp_driver_known(void) {
  if (cp_load(&cp_driver_ready)) return true;
  void *library = dlopen(LIBRARY, RTLD_LAZY | RTLD_NOLOAD);
  if (!library) return false;
  cp_driver_start();
  dlclose(library);
  return true;
}

static bool hooked(const char *name) {
  char plain[64], asked[64];
  asked_for(asked, sizeof asked, name);
  for (uint32_t i = 0; i < cp_entry_count; i++) {
    if (!cp_entries[i].wrapper) continue;
    asked_for(plain, sizeof plain, cp_entries[i].symbol);
    if (!strcmp(plain, asked)) return true;
  }
  return false;
}

void *cp_driver_swap(const char *name, void *pointer) {
  if (!pointer || cp_disabled() || !cp_driver_known()) return pointer;
  uint32_t i = slot_of(pointer);
  if (table[i].real) return table[i].wrapper;
  /* A form of a call that we do not know.  Its parameters are unknown, too, so it passes, and the daemon is told. */
  if (!cp_driver_ours(pointer) && hooked(name)) cp_passes(name);
  return pointer;
}

/* ---- cuGetProcAddress ------------------------------------------------------------------------------------------------ */

CP_GATE(cuGetProcAddress, const char *symbol, void **function, int version, cuuint64_t flags) {
  cp_driver_start();
  CUresult r = cp_real.cuGetProcAddress(symbol, function, version, flags);
  if (r == CUDA_SUCCESS && function && symbol) *function = cp_driver_swap(symbol, *function);
  return r;
}

CP_GATE(cuGetProcAddress_v2, const char *symbol, void **function, int version, cuuint64_t flags,
        CUdriverProcAddressQueryResult *status) {
  cp_driver_start();
  CUresult r = cp_real.cuGetProcAddress_v2(symbol, function, version, flags, status);
  if (r == CUDA_SUCCESS && function && symbol) *function = cp_driver_swap(symbol, *function);
  return r;
}
