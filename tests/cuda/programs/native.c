/* A program without Python and without PyTorch: native RESULT MIB ITERATIONS [launcher | helper].
 *
 * It waits for the test in the middle ($MEETING_POINT).  ``launcher``: a further process of the program computes, and this
 * one waits for it.  ``helper``: one that initialises the driver, and computes nothing, lives beside it.  EARLY: all of it
 * happens in a library's constructor. */
#define _GNU_SOURCE
#include "cuda/driver/driver.h"

#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static CUfunction fill, mix;

static void need(int condition, const char *what) {
  if (condition) return;
  fprintf(stderr, "%s has failed\n", what);
  exit(1);
}
#define OK(call) need((call) == CUDA_SUCCESS, #call)

static void meet(void) {
  const char *point = getenv("MEETING_POINT");
  struct sockaddr_un at = {.sun_family = AF_UNIX};
  char word;
  if (!point) return;
  int meeting = socket(AF_UNIX, SOCK_STREAM, 0);
  snprintf(at.sun_path, sizeof at.sun_path, "%s", point);
  need(!connect(meeting, (struct sockaddr *)&at, sizeof at) && read(meeting, &word, 1) == 1, "meeting");
  close(meeting);
}

static void launch(CUfunction function, void **parameters) {
  OK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL));
}

static void use_device(void) {
  CUcontext context;
  CUmodule module;
  OK(cuDevicePrimaryCtxRetain(&context, 0));
  OK(cuCtxSetCurrent(context));
  OK(cuModuleLoadData(&module, "stub"));
  OK(cuModuleGetFunction(&fill, module, "fill_u32"));
  OK(cuModuleGetFunction(&mix, module, "mix_u64"));
}

static uint64_t digest(CUdeviceptr memory, size_t bytes) {
  uint64_t sum = 14695981039346656037u, *content = malloc(bytes);
  OK(cuMemcpyDtoH_v2(content, memory, bytes));
  for (size_t i = 0; i < bytes / sizeof *content; i++) sum = (sum ^ content[i]) * 1099511628211u;
  free(content);
  return sum;
}

static uint64_t compute(size_t bytes, uint64_t iterations) {
  CUdeviceptr memory;
  uint64_t words = bytes / 8, numbers = bytes / 4;
  uint32_t seed = 7;
  OK(cuMemAlloc_v2(&memory, bytes));
  launch(fill, (void *[]){&memory, &seed, &numbers});
  for (uint64_t i = 0; i < iterations; i++) {
    if (i == iterations / 2) meet();
    launch(mix, (void *[]){&memory, &words, &i});
    OK(cuCtxSynchronize());
  }
  return digest(memory, bytes);
}

/* The program once more, with this as its only, or its last argument. */
static pid_t start(char **arguments, const char *how) {
  char *const alone[] = {arguments[0], (char *)(uintptr_t)how, NULL}, *const all[] = {arguments[0], arguments[1], arguments[2], arguments[3], NULL};
  pid_t pid = fork();
  if (pid) return pid;
  execv(arguments[0], how ? alone : all);
  _exit(1);
}

static int look(void) {
  int count;
  OK(cuInit(0));
  OK(cuDeviceGetCount(&count));
  return pause();
}

int main(int count, char **arguments) {
  int status;
  if (count == 2) return look();
  const char *how = count == 5 ? arguments[4] : "";
  pid_t other = !strcmp(how, "helper") ? start(arguments, how) : 0;
  if (!strcmp(how, "launcher")) return waitpid(start(arguments, NULL), &status, 0) < 0 || status;
  OK(cuInit(0));
  use_device();
  uint64_t sum = compute(strtoul(arguments[2], NULL, 10) << 20, strtoul(arguments[3], NULL, 10));
  if (other) kill(other, SIGKILL);
  FILE *result = fopen(arguments[1], "w");
  need(result != NULL, "the file for the result");
  fprintf(result, "{\"digest\": %llu}\n", (unsigned long long)sum);
  return fclose(result);
}

#ifdef EARLY
__attribute__((constructor)) static void early(int count, char **arguments) { exit(main(count, arguments)); }
#endif
