/* A program, or with -DPLUGIN a library, that is linked with an NCCL, or with -DALONE with none.  A program calls those
 * of all plugins that it is given, by way of the plugins and by dlsym. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

#define MOST 16

struct id {
  char bytes[128];
};
int ncclCommInitRank(void **communicator, int ranks, struct id id, int rank);
int ncclCommInitAll(void **communicators, int ranks, const int *devices);

static const struct id id = {{[127] = 7}};

#ifndef ALONE
static const int devices[] = {3, 4};

void call(void) {
  void *communicator;
  int first = ncclCommInitRank(&communicator, 2, id, 1), second = ncclCommInitAll(NULL, 2, devices);
  printf("linked: %d %d\n", first, second);
}
#else
static void call(void) {}
#endif

#ifndef PLUGIN
static void call_pointer(void *pointer) {
  int (*init)(void **, int, struct id, int);
  void *communicator;
  *(void **)&init = pointer;
  printf("pointer: %d\n", init ? init(&communicator, 2, id, 0) : -1);
}

int main(int count, char **arguments) {
  void *pointers[MOST] = {dlsym(RTLD_DEFAULT, "ncclCommInitRank")};
  call();
  for (int i = 1; i < count && i < MOST; i++) {
    void *plugin = dlopen(arguments[i], RTLD_NOW | RTLD_LOCAL);
    void (*function)(void);
    *(void **)&function = dlsym(plugin, "call");
    if (!plugin || !function) return puts(dlerror()), 1;
    function();
    pointers[i] = dlsym(plugin, "ncclCommInitRank");
  }
  call();
  /* all have been looked up before the first call */
  for (int i = 0; i < count && i < MOST; i++) call_pointer(pointers[i]);
  for (int i = 0; i < count && i < MOST; i++)
    for (int j = 0; j < i; j++) printf("%d is %d: %d\n", i, j, pointers[i] == pointers[j]);
  return 0;
}
#endif
