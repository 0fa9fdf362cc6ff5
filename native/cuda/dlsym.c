/* dlsym.  For names of the driver and of NCCL the pointer that libc finds is exchanged; every other call jumps on to libc
 * with its caller's return address, by which RTLD_NEXT and RTLD_DEFAULT know who asks. */
#include "base/libc.h"
#include "cuda/gate.h"

#include <dlfcn.h>
#include <stdlib.h>

#pragma weak dlvsym /* musl has none */

typedef void *(*dlsym_fn)(void *, const char *);

/* Nothing of libc's may be interposed here: other libraries' constructors come this way before ours have run. */
static dlsym_fn real(void) {
  static dlsym_fn found;
  if (!found && cp_libc_is_foreign()) found = (dlsym_fn)cp_libc_function("dlsym");
  static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.17", "GLIBC_2.2.5"};
  for (size_t i = 0; !found && i < sizeof versions / sizeof *versions; i++)
    found = (dlsym_fn)dlvsym(RTLD_NEXT, "dlsym", versions[i]);
  if (!found) abort(); /* no libc without it */
  return found;
}

void *cp_next_dlsym(void *handle, const char *name) { return real()(handle, name); }

/* The program sees what it would see without us: our exported names are nobody's answer. */
static void *find(void *handle, const char *name) {
  void *pointer = real()(handle, name);
  if (pointer && (cp_driver_ours(pointer) || cp_nccl_ours(pointer) || cp_malloc_ours(pointer)))
    pointer = real()(RTLD_NEXT, name); /* next after this library */
  if (!pointer) return NULL;
  return name[0] == 'n' ? cp_nccl_swap(name, pointer) : cp_driver_swap(name, pointer);
}

static bool begins(const char *name, const char *with) {
  while (*with && *name == *with) name++, with++;
  return !*with;
}

CP_HIDDEN __attribute__((used)) dlsym_fn cp_dlsym_route(void *handle, const char *name) {
  bool known = handle != RTLD_NEXT && name && (begins(name, "cu") || begins(name, "ncclComm"));
  return known ? find : real();
}

#if defined __x86_64__
__asm__(
    ".text\n.globl dlsym\n.type dlsym, @function\n"
    "dlsym:\n.cfi_startproc\n"
    "  endbr64\n"
    "  push %rdi\n.cfi_adjust_cfa_offset 8\n"
    "  push %rsi\n.cfi_adjust_cfa_offset 8\n"
    "  sub $8, %rsp\n.cfi_adjust_cfa_offset 8\n"
    "  call cp_dlsym_route\n"
    "  add $8, %rsp\n.cfi_adjust_cfa_offset -8\n"
    "  pop %rsi\n.cfi_adjust_cfa_offset -8\n"
    "  pop %rdi\n.cfi_adjust_cfa_offset -8\n"
    "  jmp *%rax\n"
    ".cfi_endproc\n.size dlsym, . - dlsym\n");
#elif defined __aarch64__
__asm__(
    ".text\n.globl dlsym\n.type dlsym, %function\n"
    "dlsym:\n.cfi_startproc\n"
    "  stp x0, x1, [sp, #-32]!\n.cfi_adjust_cfa_offset 32\n"
    "  str x30, [sp, #16]\n.cfi_offset 30, -16\n"
    "  bl cp_dlsym_route\n"
    "  mov x16, x0\n"
    "  ldr x30, [sp, #16]\n.cfi_restore 30\n"
    "  ldp x0, x1, [sp], #32\n.cfi_adjust_cfa_offset -32\n"
    "  br x16\n"
    ".cfi_endproc\n.size dlsym, . - dlsym\n");
#else
/* The jump is left to the optimiser. */
CP_EXPORT void *dlsym(void *restrict handle, const char *restrict name) { return cp_dlsym_route(handle, name)(handle, name); }
#endif
