/* An engine without Python, which answers as `tests/workloads/engine.py` does: engine RESULT SOCKET MIB [helper].
 *
 * As llama.cpp it reads its weights from a file into memory of libggml-base.so, locks that memory, and computes in several
 * threads.  OPENED: the library is loaded by dlopen.  ``helper``: a process of the same program lives beside it, and uses
 * no memory of the library. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define TOKENS 24
#define STEP 16 /* floats; a token looks at every 16th */

void *ggml_aligned_malloc(size_t bytes);
void ggml_aligned_free(void *memory, size_t bytes);

static float *weights, *cache;
static size_t count;
static uint32_t token;

static void *allocate(size_t bytes) {
#ifdef OPENED
  void *library = dlopen("libggml-base.so.0", RTLD_NOW);
  void *(*function)(size_t) = NULL;
  if (library) *(void **)&function = dlsym(library, "ggml_aligned_malloc");
  return function ? function(bytes) : NULL;
#else
  return ggml_aligned_malloc(bytes);
#endif
}

static void need(int condition, const char *what) {
  if (condition) return;
  perror(what);
  exit(1);
}

/* Written in pieces through a small buffer, and read in one piece into the tensors. */
static void load(void) {
  FILE *file = tmpfile();
  need(file != NULL, "tmpfile");
  for (size_t i = 0; i < count; i++) {
    float value = (float)((i * 2654435761u) >> 8 & 0xffff) / 65536.0f - 0.5f;
    need(fwrite(&value, sizeof value, 1, file) == 1, "fwrite");
  }
  rewind(file);
  need(fread(weights, sizeof *weights, count, file) == count, "fread");
  fclose(file);
}

/* Each thread has its half of the weights, and of the cache. */
static void *half(void *number) {
  size_t from = number ? count / 2 : 0, to = number ? count : count / 2;
  static float sums[2];
  float sum = 0;
  for (size_t i = from + token % STEP; i < to; i += STEP) {
    cache[i] = cache[i] * 0.5f + weights[i] * (float)(token + 1);
    sum += cache[i];
  }
  sums[number != NULL] = sum;
  return &sums[number != NULL];
}

static void next_token(void) {
  pthread_t thread;
  void *other;
  float sum = 0, both;
  need(!pthread_create(&thread, NULL, half, &sum), "pthread_create");
  both = *(float *)half(NULL);
  pthread_join(thread, &other);
  both += *(float *)other;
  memcpy(&token, &both, sizeof token);
  token = token % 251;
}

static void answer(FILE *lines, const char *prompt) {
  memset(cache, 0, count * sizeof *cache);
  for (const char *c = prompt; *c && *c != '\n'; c++) token = (token * 31 + (unsigned char)*c) % 251;
  for (int i = 0; i < TOKENS; i++) {
    next_token();
    fprintf(lines, "%u\n", token);
    fflush(lines);
  }
  token = 0;
  fputs("\n", lines);
  fflush(lines);
}

static int serve(int server) {
  char line[4096];
  for (int asked = 0;;) {
    FILE *lines = fdopen(accept(server, NULL, NULL), "r+");
    need(lines != NULL, "accept");
    while (fgets(line, sizeof line, lines)) {
      if (!strcmp(line, "end\n")) return asked;
      answer(lines, line), asked++;
    }
    fclose(lines);
  }
}

static int listen_at(const char *path) {
  struct sockaddr_un at = {.sun_family = AF_UNIX};
  int server = socket(AF_UNIX, SOCK_STREAM, 0);
  snprintf(at.sun_path, sizeof at.sun_path, "%s", path);
  need(!bind(server, (struct sockaddr *)&at, sizeof at) && !listen(server, 8), "bind");
  return server;
}

static pid_t start_helper(char **arguments) {
  pid_t pid = fork();
  if (pid) return pid;
  execl(arguments[0], arguments[0], "helper", (char *)NULL);
  _exit(1);
}

static void begin(size_t mib) {
  count = (mib << 20) / sizeof *weights / 2;
  weights = allocate(count * sizeof *weights);
  cache = allocate(count * sizeof *cache);
  need(weights && cache, "posix_memalign");
  (void)!mlock(weights, count * sizeof *weights / 2 + 4096); /* ends in the middle of a chunk */
  load();
}

int main(int arguments, char **argument) {
  if (arguments == 2) return pause();
  pid_t helper = arguments == 5 ? start_helper(argument) : 0;
  begin(strtoul(argument[3], NULL, 10));
  int asked = serve(listen_at(argument[2]));
  FILE *result = fopen(argument[1], "w");
  need(result != NULL, argument[1]);
  fprintf(result, "{\"asked\": %d}\n", asked);
  fclose(result);
  if (helper) kill(helper, SIGKILL);
  return 0;
}
