/* The checkpoint of a process: it is locked, its device memory goes to host memory and is freed, and comes back later at
 * the same addresses.  Every process that has called cuInit has a thread that does this on request; requests come over an
 * abstract socket, whose name is made of the stub's directory and the process.
 *
 * As documented for the real driver, a restore for which there is no memory leaves the process failed for good.  Memory
 * that other processes may see, and managed memory, are refused. */
#define _GNU_SOURCE
#include "stub.h"
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum command { LOCK, CHECKPOINT, RESTORE, UNLOCK, STATE, THREAD };
struct request { int command; unsigned timeout_ms; };
struct reply { int result, value; };

static CUprocessState state; /* of the serving thread */
static int listener = -1;

static socklen_t name_of(int pid, struct sockaddr_un *address) {
  struct stat directory = {0};
  stat(stub.directory, &directory);
  *address = (struct sockaddr_un){.sun_family = AF_UNIX};
  int length = snprintf(address->sun_path + 1, sizeof address->sun_path - 1, "carpool-stub.%lx.%lx.%d",
                        (unsigned long)directory.st_dev, (unsigned long)directory.st_ino, pid);
  return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

/* Copies what the file has, and nothing of what it never had, so that empty memory costs nothing. */
static void transfer(int to, int from, size_t bytes) {
  for (off_t at = 0; (at = lseek(from, at, SEEK_DATA)) >= 0 && (size_t)at < bytes;) {
    off_t end = lseek(from, at, SEEK_HOLE);
    lseek(to, at, SEEK_SET);
    while (at < end)
      if (sendfile(to, from, &at, (size_t)(end - at)) <= 0) abort();
  }
}

static void save(struct stub_physical *physical) {
  int kept = memfd_create("carpool-stub-checkpoint", MFD_CLOEXEC);
  if (kept < 0 || ftruncate(kept, (off_t)physical->bytes)) abort();
  transfer(kept, physical->fd, physical->bytes);
  physical->saved = kept;
}

static void load(struct stub_physical *physical) {
  transfer(physical->fd, physical->saved, physical->bytes);
  close(physical->saved);
  physical->saved = -1;
}

static bool movable(void) {
  for (struct stub_physical *physical = stub_physicals(); physical; physical = physical->next)
    if (physical->shared) return false;
  for (struct stub_range *range = stub_range_first(); range; range = range->next)
    if (range->kind == STUB_MANAGED) return false;
  return true;
}

static void drain(void) {
  for (CUcontext context = stub_contexts(); context; context = context->next)
    if (!context->destroyed) stub_context_drain(context);
}

/* What fails on demand in the process that is suspended or restored: a rule for the name. */
#define DEMANDED(name)         \
  static CUresult name(void) { \
    ENTER_EARLY(name);         \
    return CUDA_SUCCESS;       \
  }
DEMANDED(stub_locked)
DEMANDED(stub_checkpoint)
DEMANDED(stub_restore)

static CUresult checkpoint(void) {
  CUresult refused = stub_checkpoint();
  if (refused) return refused;
  if (!movable()) return CUDA_ERROR_NOT_SUPPORTED;
  for (struct stub_range *range = stub_range_first(); range; range = range->next)
    if (range->physical)
      mmap(range->base, range->span, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  for (struct stub_physical *physical = stub_physicals(); physical; physical = physical->next) {
    save(physical);
    stub_physical_empty(physical);
  }
  state = CU_PROCESS_STATE_CHECKPOINTED;
  return CUDA_SUCCESS;
}

static CUresult restore(void) {
  CUresult refused = stub_restore();
  if (refused) {
    state = CU_PROCESS_STATE_FAILED;
    return refused;
  }
  for (struct stub_physical *physical = stub_physicals(); physical; physical = physical->next) {
    CUresult result = stub_physical_refill(physical);
    if (!result) continue;
    for (struct stub_physical *done = stub_physicals(); done != physical; done = done->next) stub_physical_empty(done);
    state = CU_PROCESS_STATE_FAILED;
    return result;
  }
  for (struct stub_physical *physical = stub_physicals(); physical; physical = physical->next) load(physical);
  for (struct stub_range *range = stub_range_first(); range; range = range->next)
    if (range->physical && stub_range_map(range, range->prot)) abort();
  state = CU_PROCESS_STATE_LOCKED;
  return CUDA_SUCCESS;
}

static void die(void) {
  kill(getpid(), SIGSEGV); /* this thread has all signals blocked */
  for (;;) pause();
}

static CUresult lock(unsigned timeout_ms) {
  if (stub_locked()) die();
  if (!stub_gate_close(timeout_ms)) return CUDA_ERROR_NOT_READY;
  state = CU_PROCESS_STATE_LOCKED;
  return CUDA_SUCCESS;
}

static CUresult unlock(void) {
  state = CU_PROCESS_STATE_RUNNING;
  stub_gate_open();
  return CUDA_SUCCESS;
}

static CUresult act(const struct request *request) {
  static const CUprocessState needed[] = {CU_PROCESS_STATE_RUNNING, CU_PROCESS_STATE_LOCKED, CU_PROCESS_STATE_CHECKPOINTED,
                                          CU_PROCESS_STATE_LOCKED};
  if (request->command >= STATE) return CUDA_SUCCESS;
  if (state != needed[request->command]) return CUDA_ERROR_ILLEGAL_STATE;
  if (request->command == LOCK) return lock(request->timeout_ms);
  if (request->command == UNLOCK) return unlock();
  if (request->command == CHECKPOINT) drain(); /* work needs the lock of the ranges */
  stub_ranges_lock();
  CUresult result = request->command == CHECKPOINT ? checkpoint() : restore();
  stub_ranges_unlock();
  return result;
}

static void *serve(void *unused) {
  (void)unused;
  for (int peer; (peer = accept4(listener, NULL, NULL, SOCK_CLOEXEC)) >= 0; close(peer)) {
    struct request request;
    if (recv(peer, &request, sizeof request, 0) != sizeof request) continue;
    struct reply reply = {.result = act(&request)};
    reply.value = request.command == THREAD ? gettid() : (int)state;
    send(peer, &reply, sizeof reply, MSG_NOSIGNAL);
  }
  return NULL;
}

static void close_in_child(void) { close(listener); }

void stub_checkpoint_serve(void) {
  struct sockaddr_un address;
  sigset_t all, before;
  pthread_t thread;
  listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  socklen_t length = name_of(getpid(), &address);
  if (listener < 0 || bind(listener, (struct sockaddr *)&address, length) || listen(listener, 8)) {
    perror("stub driver: this process cannot be checkpointed");
    return;
  }
  pthread_atfork(NULL, NULL, close_in_child);
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  if (pthread_create(&thread, NULL, serve, NULL)) abort();
  pthread_detach(thread);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static CUresult ask(int pid, enum command command, unsigned timeout_ms, int *value) {
  if (!stub.initialized) return CUDA_ERROR_NOT_INITIALIZED;
  struct sockaddr_un address;
  struct request request = {command, timeout_ms};
  struct reply reply;
  int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  socklen_t length = name_of(pid, &address);
  bool answered = connect(fd, (struct sockaddr *)&address, length) == 0 &&
                  send(fd, &request, sizeof request, MSG_NOSIGNAL) == sizeof request &&
                  recv(fd, &reply, sizeof reply, 0) == sizeof reply;
  close(fd);
  if (!answered) return CUDA_ERROR_INVALID_VALUE; /* no such process, or one without CUDA */
  if (value) *value = reply.value;
  return (CUresult)reply.result;
}

CUresult cuCheckpointProcessLock(int pid, CUcheckpointLockArgs *args) {
  ENTER_EARLY(cuCheckpointProcessLock);
  return ask(pid, LOCK, args ? args->timeoutMs : 0, NULL);
}
CUresult cuCheckpointProcessCheckpoint(int pid, CUcheckpointCheckpointArgs *args) {
  ENTER_EARLY(cuCheckpointProcessCheckpoint);
  (void)args;
  return ask(pid, CHECKPOINT, 0, NULL);
}
CUresult cuCheckpointProcessRestore(int pid, CUcheckpointRestoreArgs *args) {
  ENTER_EARLY(cuCheckpointProcessRestore);
  if (args && args->gpuPairsCount) return CUDA_ERROR_NOT_SUPPORTED; /* onto another device: not here */
  return ask(pid, RESTORE, 0, NULL);
}
CUresult cuCheckpointProcessUnlock(int pid, CUcheckpointUnlockArgs *args) {
  ENTER_EARLY(cuCheckpointProcessUnlock);
  (void)args;
  return ask(pid, UNLOCK, 0, NULL);
}
CUresult cuCheckpointProcessGetState(int pid, CUprocessState *found) {
  ENTER_EARLY(cuCheckpointProcessGetState);
  int value;
  CUresult result = found ? ask(pid, STATE, 0, &value) : CUDA_ERROR_INVALID_VALUE;
  if (!result) *found = (CUprocessState)value;
  return result;
}
CUresult cuCheckpointProcessGetRestoreThreadId(int pid, int *thread) {
  ENTER_EARLY(cuCheckpointProcessGetRestoreThreadId);
  return thread ? ask(pid, THREAD, 0, thread) : CUDA_ERROR_INVALID_VALUE;
}
