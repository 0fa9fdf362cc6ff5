/* cuGetProcAddress.  One name has several forms: which is meant depends on the version and on the flags. */
#include "extra.h"
#include "stub.h"

struct name {
  const char *name;
  int version, own_version; /* own: of the form for per-thread default streams, 0: none */
  void *function, *own;
};
static const struct name names[] = {
#define ENTRY(name, version, symbol) {#name, version, 0, (void *)symbol, NULL},
#define PTSZ(name, version, own, symbol) {#name, version, own, (void *)symbol, (void *)symbol##_ptsz},
#define PTDS(name, version, own, symbol) {#name, version, own, (void *)symbol, (void *)symbol##_ptds},
#include "names.def"
#undef ENTRY
#undef PTSZ
#undef PTDS
};
enum { NAMES = sizeof names / sizeof *names };

/* EMULATOR_HIDE: what an older driver would not have. */
static bool hidden(const char *symbol) {
  const char *list = getenv("EMULATOR_HIDE");
  size_t length = strlen(symbol);
  for (const char *at = list; at && (at = strstr(at, symbol)); at += length)
    if ((at == list || at[-1] == ',') && (!at[length] || at[length] == ',')) return true;
  return false;
}

/* The newest form that `version` allows; *known: there is some form. */
static void *newest(const char *symbol, int version, bool own, bool *known) {
  void *function = NULL;
  int since = -1;
  for (int i = 0; i < NAMES; i++) {
    if (strcmp(names[i].name, symbol)) continue;
    int from = own ? names[i].own_version : names[i].version;
    *known = true;
    if (!from || from > version || from <= since) continue;
    since = from;
    function = own ? names[i].own : names[i].function;
  }
  return function;
}

static CUresult find(const char *symbol, void **function, int version, cuuint64_t flags,
                     CUdriverProcAddressQueryResult *status) {
  if (!symbol || !function || version > machine_version() || flags > 2) return CUDA_ERROR_INVALID_VALUE;
  bool known = false;
  *function = NULL;
  if (status) *status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  if (hidden(symbol)) return CUDA_SUCCESS;
  *function = flags == CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM ? newest(symbol, version, true, &known) : NULL;
  if (!*function) *function = newest(symbol, version, false, &known);
  if (status)
    *status = *function ? CU_GET_PROC_ADDRESS_SUCCESS
              : known   ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT
                        : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  return CUDA_SUCCESS;
}

CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *status) {
  ENTER_EARLY(cuGetProcAddress_v2);
  return find(symbol, function, version, flags, status);
}

/* The first form has no status: what it does not find is an error. */
CUresult cuGetProcAddress(const char *symbol, void **function, int version, cuuint64_t flags) {
  ENTER_EARLY(cuGetProcAddress);
  CUresult result = find(symbol, function, version, flags, NULL);
  return !result && !*function ? CUDA_ERROR_NOT_FOUND : result;
}
