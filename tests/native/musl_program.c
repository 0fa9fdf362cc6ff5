/* A program of musl that uses what libcarpool exports, and says what came of it: the same with and without libcarpool.
 *
 * Arguments name parts of it; without any it runs all.  ``exit N`` ends with this status, ``kill N`` with this signal. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS 8
#define ROUNDS 4000

static void need(int true_, const char *what) {
  if (true_) return;
  printf("not so: %s (%s)\n", what, strerror(errno));
  exit(1);
}
#define NEED(x) need((x) != 0, #x)
/* The error comes after the call, which an argument of printf need not. */
#define SAY(name, call) \
  do { \
    errno = 0; \
    long result_ = (long)(call); \
    printf("%s: %ld, error %d\n", name, result_, errno); \
  } while (0)

/* ---- memory, in threads ---------------------------------------------------------------------------------------------- */

static void *work(void *argument) {
  uint64_t seed = (uintptr_t)argument, sum = 0;
  unsigned char *kept[16] = {0};
  for (int i = 0; i < ROUNDS; i++) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    size_t bytes = seed >> 52, place = seed >> 40 & 15;
    void *aligned = NULL;
    kept[place] = realloc(kept[place], bytes + 1);
    NEED(kept[place]);
    kept[place][bytes] = (unsigned char)seed;
    NEED(!posix_memalign(&aligned, 64, bytes + 1) && !((uintptr_t)aligned & 63));
    sum += kept[place][bytes];
    free(aligned);
  }
  for (int i = 0; i < 16; i++) free(kept[i]);
  return (void *)(uintptr_t)sum;
}

static void memory(void) {
  pthread_t threads[THREADS];
  void *unused = &unused;
  for (uintptr_t i = 0; i < THREADS; i++) NEED(!pthread_create(&threads[i], NULL, work, (void *)i));
  for (int i = 0; i < THREADS; i++) {
    void *sum;
    NEED(!pthread_join(threads[i], &sum));
    printf("thread %d: %lu\n", i, (unsigned long)(uintptr_t)sum);
  }
  printf("memory: %d %d\n", posix_memalign(&unused, 3, 8), realloc(NULL, SIZE_MAX / 2) == NULL);
  free(NULL);
}

/* ---- processes -------------------------------------------------------------------------------------------------------- */

static int before, after;
static void prepare(void) { before++; }
static void parent(void) { after++; }
static void child(void) { after += 10; }

static int status_of(pid_t pid) {
  int status = 0;
  NEED(pid > 0 && waitpid(pid, &status, 0) == pid);
  return status;
}

static pid_t forked(int status) {
  fflush(stdout);
  pid_t pid = fork();
  if (pid) return pid;
  memory();
  printf("child: %d %d\n", before, after);
  exit(status);
}

static void processes(void) {
  NEED(!pthread_atfork(prepare, parent, child));
  for (int i = 0; i < 3; i++) printf("ended: %d\n", WEXITSTATUS(status_of(forked(40 + i))));
  printf("parent: %d %d\n", before, after);
  fflush(stdout);
  printf("system: %d\n", WEXITSTATUS(system("echo shell; exit 3")));
}

/* ---- signals ---------------------------------------------------------------------------------------------------------- */

static volatile sig_atomic_t seen, code;
static sigjmp_buf back;
static void note(int sig) { seen = seen * 100 + sig; }
static void note_more(int sig, siginfo_t *info, void *context) {
  (void)context;
  code = info->si_code;
  note(sig);
}
static void escape(int sig) { siglongjmp(back, sig); }

static void faults(void) {
  static volatile int *volatile nowhere;
  struct sigaction before_, action = {.sa_handler = escape, .sa_flags = SA_NODEFER};
  NEED(!sigaction(SIGSEGV, &action, &before_));
  int sig = sigsetjmp(back, 1);
  if (!sig) *nowhere = 1;
  printf("fault: %d, before: %d\n", sig, before_.sa_handler == SIG_DFL);
  NEED(!sigaction(SIGSEGV, &before_, NULL));
}

static void signals(void) {
  struct sigaction action = {.sa_sigaction = note_more, .sa_flags = SA_SIGINFO}, old;
  sigset_t some, mask;
  sigemptyset(&some);
  sigaddset(&some, SIGUSR1);
  sigaddset(&some, SIGSEGV);
  NEED(!sigaction(SIGUSR1, &action, NULL));
  NEED(signal(SIGUSR2, note) == SIG_DFL && bsd_signal(SIGUSR2, note) == note);
  NEED(!pthread_sigmask(SIG_BLOCK, &some, NULL) && !raise(SIGUSR1) && !raise(SIGUSR2));
  printf("while blocked: %d\n", seen);
  NEED(!sigprocmask(SIG_UNBLOCK, &some, &mask));
  printf("then: %d %d, segv %d\n", seen, code, sigismember(&mask, SIGSEGV));
  NEED(!sigaction(SIGUSR1, NULL, &old));
  printf("kept: %d %x\n", old.sa_sigaction == note_more, (unsigned)old.sa_flags & 0xff);
  SAY("refused", signal(SIGKILL, note));
  faults();
}

/* ---- system calls and streams ------------------------------------------------------------------------------------------ */

static void sockets(void) {
  int pair[2];
  char in[64] = "";
  struct iovec part[2] = {{"ab", 2}, {"cd", 2}}, to = {in + 8, 8};
  struct msghdr out = {.msg_iov = part, .msg_iovlen = 2}, got = {.msg_iov = &to, .msg_iovlen = 1};
  NEED(!socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
  NEED(send(pair[0], "12", 2, 0) == 2 && recv(pair[1], in, 2, 0) == 2);
  NEED(sendto(pair[0], "34", 2, 0, NULL, 0) == 2 && recvfrom(pair[1], in + 2, 2, 0, NULL, NULL) == 2);
  NEED(sendmsg(pair[0], &out, 0) == 4 && recvmsg(pair[1], &got, 0) == 4);
  printf("sockets: %s %s\n", in, in + 8);
  close(pair[0]);
  close(pair[1]);
}

static void files(void) {
  char name[] = "/tmp/carpool-musl-XXXXXX", in[64] = "";
  int fd = mkstemp(name);
  struct iovec part[2] = {{"vec", 3}, {"tor", 3}}, to[2] = {{in, 3}, {in + 4, 3}};
  NEED(fd >= 0 && !unlink(name));
  NEED(write(fd, "written", 7) == 7 && pwrite(fd, "W", 1, 0) == 1 && pread(fd, in, 7, 0) == 7);
  SAY(in, read(fd, in + 8, 1));
  NEED(writev(fd, part, 2) == 6 && pwritev(fd, part, 2, 20) == 6 && preadv(fd, to, 2, 20) == 6);
  NEED(lseek(fd, 7, SEEK_SET) == 7 && readv(fd, to, 2) == 6);
  printf("vectors: %s %s\n", in, in + 4);
  SAY("no file", read(-1, in, 1));
  FILE *file = fdopen(fd, "w+");
  NEED(file && fwrite("stream", 2, 3, file) == 3 && fwrite_unlocked("s", 1, 1, file) == 1);
  rewind(file);
  memset(in, 0, sizeof in);
  NEED(fread(in, 1, 4, file) == 4 && fread_unlocked(in + 4, 1, 8, file) >= 3);
  printf("streams: %.7s\n", in);
  fclose(file);
}

/* ---- names ------------------------------------------------------------------------------------------------------------- */

static void names(void) {
  void *program = dlopen(NULL, RTLD_NOW);
  printf("puts: %d %d\n", dlsym(program, "puts") == (void *)puts, dlsym(RTLD_NEXT, "puts") == (void *)puts);
  printf("driver: %d\n", dlsym(RTLD_DEFAULT, "cuInit") != NULL || dlsym(program, "ncclCommInitAll") != NULL);
  void *none = dlsym(program, "no_such_name");
  printf("none: %d %d\n", none == NULL, dlerror() != NULL);
  ssize_t (*reads)(int, void *, size_t) = (ssize_t(*)(int, void *, size_t))dlsym(program, "read");
  SAY("read", reads(-1, NULL, 0));
}

/* ---- what a library leaves in a process -------------------------------------------------------------------------------- */

static void state(void) {
  char line[256];
  FILE *file = fopen("/proc/self/status", "r");
  NEED(file);
  while (fgets(line, sizeof line, file))
    if ((!strncmp(line, "Sig", 3) && line[3] != 'Q') || !strncmp(line, "Shd", 3) || !strncmp(line, "Threads", 7)) fputs(line, stdout);
  fclose(file);
  for (int fd = 0; fd < 64; fd++)
    if (fcntl(fd, F_GETFD) >= 0) printf("fd %d\n", fd);
}

static const struct {
  const char *name;
  void (*run)(void);
} parts[] = {{"state", state}, {"memory", memory}, {"processes", processes}, {"signals", signals},
             {"sockets", sockets}, {"files", files}, {"names", names}};

int main(int argc, char **argv) {
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
    if (argc == 1 || !strcmp(argv[1], parts[i].name)) parts[i].run();
  if (argc == 1) state();
  fflush(stdout);
  if (argc == 3 && !strcmp(argv[1], "kill")) raise(atoi(argv[2]));
  return argc == 3 && !strcmp(argv[1], "exit") ? atoi(argv[2]) : 0;
}
