/* Counting of what is asked for and not done.  With a word as its argument the program does one thing and ends. */
#include "null_work.h"
#include "stubtest.h"
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>

/* Runs this program again with that argument and variable; what it writes to stderr goes to `errors`. */
static int again(const char *argument, const char *name, const char *value, char errors[512]) {
  int ends[2], status;
  CHECK_THAT(!pipe(ends));
  pid_t child = fork();
  if (!child) {
    dup2(ends[1], 2);
    setenv(name, value, 1);
    execl("/proc/self/exe", "null_work", argument, NULL);
    _exit(127);
  }
  close(ends[1]);
  size_t length = 0;
  for (ssize_t got; (got = read(ends[0], errors + length, 511 - length)) > 0;) length += (size_t)got;
  errors[length] = 0;
  close(ends[0]);
  CHECK_THAT(waitpid(child, &status, 0) == child);
  return status;
}

static void *in_a_thread(void *unused) {
  (void)unused;
  CHECK_THAT(emulator_null_count() == 0 && !emulator_operator("mm"));
  emulator_null_work("gemm");
  CHECK_THAT(emulator_null_count() == 1);
  return NULL;
}
static void counts_are_a_thread_s(void) {
  pthread_t thread;
  emulator_null_work("one");
  emulator_null_work("two");
  CHECK_THAT(!pthread_create(&thread, NULL, in_a_thread, NULL) && !pthread_join(thread, NULL));
  CHECK_THAT(emulator_null_count() == 2 && !emulator_operator(NULL));
}
static void operators_nest(void) {
  const char *outer = emulator_operator("softmax");
  const char *inner = emulator_operator("exp");
  CHECK_THAT(!outer && !strcmp(inner, "softmax") && !strcmp(emulator_operator(outer), "exp"));
}
static void unexpected_calls_have_names(void) {
  char names[64] = "?", few[8];
  CHECK_THAT(emulator_unexpected_calls(names, sizeof names) == 0 && !*names);
  emulator_unexpected("cudaFirst");
  emulator_unexpected("cudaSecond");
  emulator_unexpected("cudaFirst");
  CHECK_THAT(emulator_unexpected_calls(NULL, 0) == 3);
  CHECK_THAT(emulator_unexpected_calls(names, sizeof names) == 3 && !strcmp(names, "cudaFirst,cudaSecond"));
  CHECK_THAT(emulator_unexpected_calls(few, sizeof few) == 3 && !*few);
}

static void results_end_a_process(void) {
  char errors[512];
  int status = again("inside", "EMULATOR_RESULTS", "1", errors);
  CHECK_THAT(WIFEXITED(status) && WEXITSTATUS(status) == 0 && !*errors);
  status = again("outside", "EMULATOR_RESULTS", "1", errors);
  CHECK_THAT(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT && strstr(errors, " gemm "));
  CHECK_THAT(strchr(errors, '\n') == errors + strlen(errors) - 1);
  status = again("outside", "EMULATOR_RESULTS", "0", errors);
  CHECK_THAT(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}
/* Also of a process that ends without its exit handlers; processes share the file. */
static void unexpected_calls_are_written(void) {
  char errors[512], path[] = "/tmp/null_work.XXXXXX", text[128] = "";
  int fd = mkstemp(path);
  CHECK_THAT(fd >= 0);
  for (int i = 0; i < 2; i++) CHECK_THAT(again("unexpected", "EMULATOR_UNEXPECTED", path, errors) == 0);
  CHECK_THAT(read(fd, text, sizeof text - 1) > 0 && !strcmp(text, "cudaOne\ncudaTwo\ncudaOne\ncudaTwo\n"));
  CHECK_THAT(!unlink(path) && !close(fd));
  int status = again("unexpected", "EMULATOR_UNEXPECTED", "/no/such/folder/file", errors);
  CHECK_THAT(WIFSIGNALED(status) && strstr(errors, "EMULATOR_UNEXPECTED=/no/such/folder/file"));
}

static int one_thing(const char *what) {
  if (!strcmp(what, "inside")) emulator_operator("mm");
  if (!strcmp(what, "unexpected")) {
    for (int i = 0; i < 2; i++) emulator_unexpected("cudaOne"), emulator_unexpected("cudaTwo");
    _exit(0);
  }
  emulator_null_work("gemm");
  return 0;
}

int main(int count, char **arguments) {
  if (count > 1) return one_thing(arguments[1]);
  counts_are_a_thread_s();
  operators_nest();
  unexpected_calls_have_names();
  results_end_a_process();
  unexpected_calls_are_written();
  /* the driver needs no device for any of that; this one is for the test that looks at its state afterwards */
  begin();
  return 0;
}
