/* A library, or with -DPROGRAM a program, that asks dlsym and dlvsym, and says in which library each answer lies, and
 * where.  Calls of the driver are told apart by the library alone: a wrapper lies elsewhere. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#define TEXT_OF(name) #name
#define TEXT(name) TEXT_OF(name)
#define JOINED_OF(a, b) a##b
#define JOINED(a, b) JOINED_OF(a, b)

#define COUNT(list) (sizeof(list) / sizeof *(list))

static const char *const names[] = {"curl_x", "plain_x", "own_of_plugin", "cupid_x", "getpid", "cudaMalloc", "cuInit",
                                    "cuMemAlloc_v2", "cuStreamQuery", "cuNoSuchCall", "ncclCommInitRank"};
static const struct {
  const char *name, *version;
} versioned[] = {{"twice", "V1"},
                 {"twice", "V2"},
                 {"twice", "V3"},
                 {"cuInit", "V1"},
                 {"cuNoSuchCall", "V1"},
                 {"curl_x", "V1"},
                 {"memcpy", "GLIBC_2.2.5"},
                 {"memcpy", "GLIBC_2.14"},
                 {"cudaMalloc", "libcudart.so.12"}};

static void tell(const char *how, const char *name, void *pointer) {
  Dl_info info;
  const char *file = pointer && dladdr(pointer, &info) ? strrchr(info.dli_fname, '/') : NULL;
  printf("%s %s %s %s", TEXT(WHO), how, name, file ? file + 1 : "NULL");
  if (file && strncmp(name, "cu", 2)) printf("+%zx", (size_t)((char *)pointer - (char *)info.dli_fbase));
  printf("\n");
}

static void all_of(void *handle, const char *how) {
  char text[64];
  for (size_t i = 0; i < COUNT(names); i++) tell(how, names[i], dlsym(handle, names[i]));
  for (size_t i = 0; i < COUNT(versioned); i++) {
    snprintf(text, sizeof text, "%s@%s", versioned[i].name, versioned[i].version);
    tell(how, text, dlvsym(handle, versioned[i].name, versioned[i].version));
  }
}

#ifdef PLUGIN
int cuInit(unsigned int flags);
int cudaMalloc(void **address, size_t bytes);
#endif

void JOINED(ask_, WHO)(void) {
#ifdef PLUGIN
  tell("linked", "cuInit", (void *)cuInit);
  tell("linked", "cudaMalloc", (void *)cudaMalloc);
#endif
  all_of(RTLD_DEFAULT, "default");
  all_of(RTLD_NEXT, "next");
}

#ifdef PROGRAM
static void *load(const char *file, const char *ask) {
  void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  void (*function)(void);
  *(void **)&function = library ? dlsym(library, ask) : NULL;
  if (function)
    function();
  else
    printf("%s: %s\n", file, dlerror());
  return library;
}

int main(void) {
  JOINED(ask_, WHO)();
  void *plugin = load("libplugin.so", "ask_plugin");
  load("liblonely.so", "ask_lonely");
  load("libdep.so", "ask_dep");
  load("libbeside.so", "ask_beside");
  load("libinterposer.so", "ask_interposer");
  all_of(plugin, "handle");
  all_of(dlopen(NULL, RTLD_NOW), "program");
  return 0;
}
#endif
