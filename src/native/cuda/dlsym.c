/* dlsym and dlvsym.  For names of the driver and of NCCL the pointer that libc finds is exchanged; every other call
 * jumps on to libc with its caller's return address, by which RTLD_NEXT and RTLD_DEFAULT know who asks.  Our own
 * wrappers are nobody's answer there: they have versions that only references find (abi/exports.map).
 *
 * To exchange a pointer the library must get it first, and libc takes whoever it returns to for its caller.  So it
 * returns to an instruction of the caller's library that does nothing but return once more, to here. */
#include "base/libc.h"
#include "cuda/gate.h"

#include <dlfcn.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>

typedef void *(*ask_fn)(void *handle, const char *name, const char *version); /* dlsym looks at no version */

/* Nothing of libc's may be interposed here: other libraries' constructors come this way before ours have run. */
static ask_fn real(bool with_version) {
  static ask_fn found[2];
  if (!found[with_version]) found[with_version] = (ask_fn)cp_libc_function(with_version ? "dlvsym" : "dlsym");
  if (!found[with_version]) abort(); /* no libc without it */
  return found[with_version];
}

void *cp_next_dlsym(void *handle, const char *name) { return real(false)(handle, name, NULL); }

/* ---- asking in another library's name ---------------------------------------------------------------------------- */

#if defined __x86_64__
/* cp_ask_from(handle, name, version, ask, returns) */
__asm__(
    ".text\n.type cp_ask_from, @function\n"
    "cp_ask_from:\n.cfi_startproc\n"
    "  lea 1f(%rip), %rax\n"
    "  push %rax\n.cfi_adjust_cfa_offset 8\n"
    "  push %r8\n.cfi_adjust_cfa_offset 8\n"
    "  jmp *%rcx\n"
    "1:\n.cfi_adjust_cfa_offset -16\n"
    "  ret\n"
    ".cfi_endproc\n.size cp_ask_from, . - cp_ask_from\n");
#define RETURN 0xc3

/* A shadow stack lets nobody return to where no call was. */
static bool returns_freely(void) {
  uint64_t shadow_stack = 0;
  __asm__("rdsspq %0" : "+r"(shadow_stack));
  return !shadow_stack;
}
void *cp_ask_from(void *handle, const char *name, const char *version, ask_fn ask, const void *returns) CP_HIDDEN;

struct search {
  uintptr_t address;
  const void *returns;
};

/* Any segment of code returns somewhere, near its begin as a rule. */
static int look(struct dl_phdr_info *info, size_t size, void *argument) {
  struct search *s = argument;
  (void)size;
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const ElfW(Phdr) *h = &info->dlpi_phdr[i];
    uintptr_t begin = info->dlpi_addr + h->p_vaddr;
    if (h->p_type != PT_LOAD || ~h->p_flags & (PF_R | PF_X) || s->address - begin >= h->p_filesz) continue;
    s->returns = memchr((const void *)begin, RETURN, h->p_filesz);
    return 1;
  }
  return 0;
}

/* NULL: nothing in the caller's library does so, or may. */
static const void *returns_in(const void *caller) {
  struct search s = {.address = (uintptr_t)caller};
  if (returns_freely()) dl_iterate_phdr(look, &s);
  return s.returns;
}
#else
static const void *returns_in(const void *caller) { return (void)caller, NULL; }
#define cp_ask_from(handle, name, version, ask, returns) ((ask)((handle), (name), (version)))
#endif

/* Where nothing returns: in the name of this library, then by the caller's handle, with what it needs. */
static void *ask_instead(const void *caller, void *handle, const char *name, const char *version) {
  Dl_info info;
  void *found = real(version)(handle, name, version);
  bool own = !found && handle == RTLD_DEFAULT && dladdr(caller, &info);
  void *library = own ? dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD) : NULL;
  if (library) found = real(version)(library, name, version);
  if (library) dlclose(library);
  return found;
}

static void *ask(const void *caller, void *handle, const char *name, const char *version) {
  if (handle != RTLD_DEFAULT && handle != RTLD_NEXT) return real(version)(handle, name, version);
  const void *returns = returns_in(caller);
  if (!returns) return ask_instead(caller, handle, name, version);
  return cp_ask_from(handle, name, version, real(version), returns);
}

void *cp_meant_by(const void *address, const char *name) { return ask(address, RTLD_DEFAULT, name, NULL); }

/* ---- what programs call ------------------------------------------------------------------------------------------ */

static void *exchanged(const char *name, void *pointer) {
  if (!pointer) return NULL;
  return name[0] == 'n' ? cp_nccl_swap(name, pointer) : cp_driver_swap(name, pointer);
}

static void *find(void *handle, const char *name) {
  return exchanged(name, ask(__builtin_return_address(0), handle, name, NULL));
}

/* Our cudaMalloc has the versions of all runtimes: then it is asked for without one. */
static void *find_version(void *handle, const char *name, const char *version) {
  const void *caller = __builtin_return_address(0);
  void *found = ask(caller, handle, name, version);
  if (cp_malloc_ours(found)) found = ask(caller, handle, name, NULL);
  return exchanged(name, found);
}

static bool of_the_driver(const char *name) {
  return name[0] == 'c' && name[1] == 'u' && name[2] >= 'A' && name[2] <= 'Z';
}

static bool exchangeable(const char *name) {
  return name && (of_the_driver(name) || !strncmp(name, "ncclComm", 8) || !strcmp(name, "cudaMalloc"));
}

/* Where a call jumps on to: with its arguments, and as if from its caller. */
CP_HIDDEN __attribute__((used)) void *cp_dlsym_route(void *handle, const char *name) {
  (void)handle;
  return exchangeable(name) ? (void *)find : (void *)real(false);
}

CP_HIDDEN __attribute__((used)) void *cp_dlvsym_route(void *handle, const char *name, const char *version) {
  (void)handle;
  return exchangeable(name) && version ? (void *)find_version : (void *)real(true);
}

#if defined __x86_64__
#define JUMP(symbol) \
  __asm__( \
      ".text\n.globl " #symbol "\n.type " #symbol ", @function\n" \
      #symbol ":\n.cfi_startproc\n" \
      "  endbr64\n" \
      "  push %rdi\n.cfi_adjust_cfa_offset 8\n" \
      "  push %rsi\n.cfi_adjust_cfa_offset 8\n" \
      "  push %rdx\n.cfi_adjust_cfa_offset 8\n" \
      "  call cp_" #symbol "_route\n" \
      "  pop %rdx\n.cfi_adjust_cfa_offset -8\n" \
      "  pop %rsi\n.cfi_adjust_cfa_offset -8\n" \
      "  pop %rdi\n.cfi_adjust_cfa_offset -8\n" \
      "  jmp *%rax\n" \
      ".cfi_endproc\n.size " #symbol ", . - " #symbol "\n");
#elif defined __aarch64__
#define JUMP(symbol) \
  __asm__( \
      ".text\n.globl " #symbol "\n.type " #symbol ", %function\n" \
      #symbol ":\n.cfi_startproc\n" \
      "  stp x0, x1, [sp, #-32]!\n.cfi_adjust_cfa_offset 32\n" \
      "  stp x2, x30, [sp, #16]\n.cfi_offset 30, -8\n" \
      "  bl cp_" #symbol "_route\n" \
      "  mov x16, x0\n" \
      "  ldp x2, x30, [sp, #16]\n.cfi_restore 30\n" \
      "  ldp x0, x1, [sp], #32\n.cfi_adjust_cfa_offset -32\n" \
      "  br x16\n" \
      ".cfi_endproc\n.size " #symbol ", . - " #symbol "\n");
#endif
#ifdef JUMP
JUMP(dlsym)
JUMP(dlvsym)
#else
/* The jump is left to the optimiser. */
CP_EXPORT void *dlsym(void *restrict handle, const char *restrict name) {
  return ((ask_fn)cp_dlsym_route(handle, name))(handle, name, NULL);
}
CP_EXPORT void *dlvsym(void *restrict handle, const char *restrict name, const char *restrict version) {
  return ((ask_fn)cp_dlvsym_route(handle, name, version))(handle, name, version);
}
#endif
