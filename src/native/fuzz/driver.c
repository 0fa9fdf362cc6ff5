/* The driver of the fuzzing targets: replays inputs, looks for new ones, and drops those that add nothing.
 *
 *   TARGET replay FILE|DIRECTORY...           0: every input came out right
 *   TARGET fuzz SECONDS SEED CORPUS KEEP      mutates CORPUS (and KEEP); inputs that reach new code go to KEEP
 *   TARGET merge FROM... TO                   writes to TO what of FROM reaches code that smaller ones do not
 *
 * A child process runs the inputs.  Each lies in memory that its parent shares, so the one on which the child has died or
 * hung is written to CRASHES, a directory (`$FUZZ_CRASHES`, or the working directory).  New code is a pair of basic blocks
 * that follow each other, or a pair that is passed more often than ever (by powers of two).  One seed gives one sequence of
 * inputs, unless the target has threads. */
#include "fuzz/fuzz.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MOST_BYTES 4096u /* of an input */
#define MOST_INPUTS 16384u
#define PLACES 65536u
#define INPUT_S 20u /* longer than any input takes, under sanitizers and on a busy machine */
#define MOST_CHANGES 8u

struct bytes {
  size_t size;
  uint8_t *at;
};

/* What the parent knows of its child. */
static struct shared {
  size_t size;
  uint64_t runs, kept;
  char name[256];
  uint8_t input[MOST_BYTES];
} *shared;

static struct bytes corpus[MOST_INPUTS];
static size_t inputs;
static uint64_t state; /* of the random numbers */
static int errors = -1; /* the file that is stderr of the child */

static void fail(const char *what) {
  perror(what);
  exit(2);
}

/* ---- coverage -------------------------------------------------------------------------------------------------------- */

static uint8_t passed[PLACES], seen[PLACES]; /* in this input; in all, a bit for each power of two */
static __thread uintptr_t before;

void __sanitizer_cov_trace_pc(void);
__attribute__((no_sanitize("address", "undefined", "thread"))) void __sanitizer_cov_trace_pc(void) {
  uintptr_t here = (uintptr_t)__builtin_return_address(0);
  uint8_t *place = &passed[((here ^ before) * 0x9e3779b97f4a7c15ull) >> 48];
  if (*place != UINT8_MAX) ++*place;
  before = here << 1;
}

static uint8_t power(uint8_t count) { return (uint8_t)(count ? 1u << (31 - __builtin_clz(count)) : 0); }

/* Is there anything that no input before has reached?  counts: also if it is reached more often. */
static bool is_new(bool counts) {
  bool found = false;
  for (size_t i = 0; i < PLACES; i++) {
    uint8_t bit = counts ? power(passed[i]) : passed[i] != 0;
    found |= (bit & ~seen[i]) != 0;
    seen[i] |= bit;
  }
  return found;
}

/* ---- files ----------------------------------------------------------------------------------------------------------- */

static void add(const uint8_t *data, size_t size) {
  if (inputs == MOST_INPUTS) return;
  uint8_t *copy = malloc(size ? size : 1);
  if (!copy) fail("malloc");
  memcpy(copy, data, size);
  corpus[inputs++] = (struct bytes){size, copy};
}

static size_t read_file(const char *path, uint8_t *into) {
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  ssize_t size = fd < 0 ? -1 : read(fd, into, MOST_BYTES);
  if (size < 0) fail(path);
  close(fd);
  return (size_t)size;
}

static int by_name(const struct dirent **a, const struct dirent **b) { return strcmp((*a)->d_name, (*b)->d_name); }

/* `each` for a file, or for all files of a directory in the order of their names. */
static void walk(const char *path, void (*each)(const char *)) {
  struct dirent **entries;
  int count = scandir(path, &entries, NULL, by_name);
  if (count < 0) {
    each(path);
    return;
  }
  for (int i = 0; i < count; i++) {
    char name[4096];
    struct stat status;
    snprintf(name, sizeof name, "%s/%s", path, entries[i]->d_name);
    if (!stat(name, &status) && S_ISREG(status.st_mode)) each(name);
    free(entries[i]);
  }
  free(entries);
}

static uint64_t hash(const uint8_t *data, size_t size) {
  uint64_t h = 0xcbf29ce484222325ull;
  for (size_t i = 0; i < size; i++) h = (h ^ data[i]) * 0x100000001b3ull;
  return h;
}

static void write_input(const char *directory, const char *prefix) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%s%016llx", directory, prefix, (unsigned long long)hash(shared->input, shared->size));
  int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0 || write(fd, shared->input, shared->size) != (ssize_t)shared->size) fail(path);
  close(fd);
  if (*prefix) fprintf(stderr, "the input is in %s\n", path);
}

/* ---- running --------------------------------------------------------------------------------------------------------- */

static void run(void) {
  memset(passed, 0, sizeof passed);
  before = 0;
  if (ftruncate(errors, 0)) fail("ftruncate");
  alarm(INPUT_S);
  uint8_t *exact = malloc(shared->size ? shared->size : 1); /* so that the address sanitizer sees its end */
  if (!exact) fail("malloc");
  memcpy(exact, shared->input, shared->size);
  LLVMFuzzerTestOneInput(exact, shared->size);
  free(exact);
  alarm(0);
  shared->runs++;
}

static void replay_file(const char *path) {
  shared->size = read_file(path, shared->input);
  snprintf(shared->name, sizeof shared->name, "%s", path);
  run();
}

static void add_file(const char *path) {
  uint8_t data[MOST_BYTES];
  size_t size = read_file(path, data);
  add(data, size);
}

/* ---- mutations ------------------------------------------------------------------------------------------------------- */

static uint64_t next_random(void) {
  state += 0x9e3779b97f4a7c15ull;
  uint64_t z = state;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ z >> 27) * 0x94d049bb133111ebull;
  return z ^ z >> 31;
}

static size_t below(size_t limit) { return limit ? next_random() % limit : 0; }

static uint64_t telling_number(void) {
  static const uint64_t some[] = {0, 1, 2, 3, 4095, 4096, 4097, 0x7fffffff, 0x80000000, UINT32_MAX, 1ull << 21, 1ull << 30,
                                  1ull << 32, 1ull << 40, INT64_MAX, 1ull << 63, UINT64_MAX - 4095, UINT64_MAX};
  uint64_t n = some[below(sizeof some / sizeof *some)];
  return below(4) ? n : n + below(5) - 2;
}

static void write_number(uint8_t *at, size_t room) {
  uint64_t value = telling_number();
  size_t width = (size_t)1 << below(4);
  memcpy(at, &value, width < room ? width : room);
}

static void open_gap(uint8_t *data, size_t *size, size_t at, size_t bytes) {
  if (bytes > MOST_BYTES - *size) bytes = MOST_BYTES - *size;
  memmove(data + at + bytes, data + at, *size - at);
  for (size_t i = 0; i < bytes; i++) data[at + i] = (uint8_t)next_random();
  *size += bytes;
}

/* A piece of another input, over this one's bytes. */
static void cross_over(uint8_t *data, size_t *size, size_t at) {
  const struct bytes *other = &corpus[below(inputs)];
  size_t from = below(other->size), bytes = 1 + below(other->size - from);
  if (!other->size) return;
  if (bytes > MOST_BYTES - at) bytes = MOST_BYTES - at;
  memcpy(data + at, other->at + from, bytes);
  if (at + bytes > *size) *size = at + bytes;
}

static void change(uint8_t *data, size_t *size) {
  size_t at = below(*size + 1), cut;
  switch (below(6)) {
  case 0: open_gap(data, size, at, 1 + below(16)); break;
  case 1: cross_over(data, size, at); break;
  case 2:
    cut = below(*size - at + 1) % 32;
    memmove(data + at, data + at + cut, *size - at - cut);
    *size -= cut;
    break;
  case 3: write_number(data + at, *size - at); break;
  default:
    if (at < *size) data[at] ^= (uint8_t)(below(2) ? 1u << below(8) : next_random());
  }
}

static void mutate(void) {
  const struct bytes *from = &corpus[below(inputs)];
  memcpy(shared->input, from->at, from->size);
  shared->size = from->size;
  for (size_t n = 1 + below(MOST_CHANGES); n; n--) change(shared->input, &shared->size);
}

/* ---- what a child does ----------------------------------------------------------------------------------------------- */

static void replay(char **arguments) {
  for (; *arguments; arguments++) walk(*arguments, replay_file);
}

static bool is_over(const struct timespec *end) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec > end->tv_sec || (now.tv_sec == end->tv_sec && now.tv_nsec >= end->tv_nsec);
}

static void fuzz(char **arguments) {
  struct timespec end;
  const char *keep = arguments[3];
  clock_gettime(CLOCK_MONOTONIC, &end);
  end.tv_sec += atol(arguments[0]);
  state = strtoull(arguments[1], NULL, 0);
  add((const uint8_t *)"", 0);
  walk(arguments[2], add_file);
  walk(keep, add_file);
  for (size_t i = 0; i < inputs; i++) {
    memcpy(shared->input, corpus[i].at, shared->size = corpus[i].size);
    run();
    is_new(true);
  }
  while (!is_over(&end)) {
    mutate();
    run();
    if (!is_new(true)) continue;
    add(shared->input, shared->size);
    write_input(keep, "");
    shared->kept++;
  }
}

static int by_size(const void *a, const void *b) {
  size_t x = ((const struct bytes *)a)->size, y = ((const struct bytes *)b)->size;
  return (x > y) - (x < y);
}

static void merge(char **arguments) {
  char **to = arguments;
  while (to[1]) walk(*to++, add_file);
  qsort(corpus, inputs, sizeof *corpus, by_size);
  for (size_t i = 0; i < inputs; i++) {
    memcpy(shared->input, corpus[i].at, shared->size = corpus[i].size);
    run();
    if (!is_new(false)) continue;
    write_input(*to, "");
    shared->kept++;
  }
}

/* ---- the parent ------------------------------------------------------------------------------------------------------ */

/* What the child says on stderr: of the input at which it has died, and of no other.  The library says why it gives up, at
 * thousands of inputs. */
static void show_errors(void) {
  char piece[4096];
  ssize_t n;
  for (off_t at = 0; (n = pread(errors, piece, sizeof piece, at)) > 0; at += n) fwrite(piece, 1, (size_t)n, stderr);
}

static int judge(int status) {
  if (WIFEXITED(status) && !WEXITSTATUS(status)) {
    printf("%llu inputs, %llu kept\n", (unsigned long long)shared->runs, (unsigned long long)shared->kept);
    return 0;
  }
  const char *directory = getenv("FUZZ_CRASHES");
  bool hung = WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM;
  fprintf(stderr, "%s (status %d) after %llu inputs %s\n", hung ? "hung" : "died", status,
          (unsigned long long)shared->runs, shared->name);
  show_errors();
  write_input(directory ? directory : ".", hung ? "hang-" : "crash-");
  return 1;
}

int main(int argc, char **argv) {
  static const struct {
    const char *name;
    int least, most; /* arguments */
    void (*does)(char **);
  } modes[] = {{"replay", 1, 1 << 20, replay}, {"fuzz", 4, 4, fuzz}, {"merge", 2, 1 << 20, merge}};
  shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  errors = memfd_create("errors", MFD_CLOEXEC);
  if (shared == MAP_FAILED || errors < 0) fail("shared memory");
  fcntl(errors, F_SETFL, O_APPEND);
  for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
    if (argc < 2 || strcmp(argv[1], modes[i].name) != 0 || argc - 2 < modes[i].least || argc - 2 > modes[i].most) continue;
    pid_t child = fork();
    int status;
    if (child < 0) fail("fork");
    if (!child) {
      dup2(errors, 2);
      modes[i].does(argv + 2);
      _exit(0);
    }
    if (waitpid(child, &status, 0) != child) fail("waitpid");
    return judge(status);
  }
  fprintf(stderr, "usage: %s replay FILE|DIRECTORY... | fuzz SECONDS SEED CORPUS KEEP | merge FROM... TO\n", argv[0]);
  return 2;
}
