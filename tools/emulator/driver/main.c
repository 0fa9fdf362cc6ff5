/* A stand-in for libcuda.so.1: a device whose memory is files and whose streams are threads.
 *
 * It runs no CUDA code: the module whose image is the text "stub" holds the few kernels of kernel.c, and those of all other
 * modules compute nothing.  Environment, beside that of machine.h and null_work.h:
 *
 *   EMULATOR_CONTEXT      device memory that every context costs at first (default: 85 MiB of 1 GiB, 341 MiB from 4 GiB on).
 *                         The first launches from two modules cost an eighth of that more, each
 *   EMULATOR_KERNEL_US    microseconds that every null kernel takes on its stream (default 0; fractions are allowed)
 *   EMULATOR_FAIL         calls that fail: "cuMemCreate=2@3,cuMemFree=1" is function=result, @n: only the n-th call.
 *                         A name without its suffix (cuMemAlloc for cuMemAlloc_v2) stands for every form of the call.
 *                         In a process that is checkpointed "stub_checkpoint=2" makes it refuse (2: as on MIG, 801: as
 *                         PyTorch before driver 575), "stub_locked=1" makes it die of being locked (as with driver 610.57),
 *                         and "stub_restore=2" makes its restore fail, for good.
 *                         A call with the result -1 never comes back.
 *   EMULATOR_HIDE         names that cuGetProcAddress does not find, as with an older driver: "cuMemcpyBatchAsync,..."
 *   CUDA_LOG_FILE         file to which a line is appended for each call that EMULATOR_FAIL makes fail, as by the real one
 *   CUDA_VISIBLE_DEVICES  numbers of devices, or uuids ("GPU-6361..." or the beginning of one), as for the real driver;
 *                         of instances (EMULATOR_MIG) a process sees one
 *
 * Programs that link or dlopen it may ask `stub_calls("cuMemAlloc")` how often something was called; ctypes finds it too.
 * Known differences from the real driver are listed in README.md. */
#define _GNU_SOURCE
#include "stub.h"
#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

struct stub_state stub = {.lock = PTHREAD_MUTEX_INITIALIZER, .progress = PTHREAD_COND_INITIALIZER};

struct stub_rule {
  char name[64];
  int result;
  uint64_t only, seen;
};
static struct stub_rule rules[16];
static unsigned rule_count;
static bool rules_read;
static struct stub_call *calls;
static pthread_mutex_t calls_lock = PTHREAD_MUTEX_INITIALIZER;

static pthread_mutex_t gate_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t gate_changed = PTHREAD_COND_INITIALIZER;
static bool gate_closed;
static long under_way;
static __thread int depth __attribute__((tls_model("initial-exec")));
__thread bool stub_in_callback;

uint64_t stub_now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Length of a name without _v2, _ptsz and _ptds. */
static size_t base_length(const char *name) {
  size_t length = strlen(name);
  if (length > 5 && (!strcmp(name + length - 5, "_ptsz") || !strcmp(name + length - 5, "_ptds"))) length -= 5;
  if (length > 3 && name[length - 3] == '_' && name[length - 2] == 'v') length -= 3;
  return length;
}

static bool named(const char *asked, const char *name) {
  return !strcmp(asked, name) || (strlen(asked) == base_length(name) && !strncmp(asked, name, strlen(asked)));
}

static void read_rules(void) {
  rules_read = true;
  const char *text = getenv("EMULATOR_FAIL");
  for (; text && *text && rule_count < 16; text = strchr(text, ',') ? strchr(text, ',') + 1 : NULL) {
    struct stub_rule *rule = &rules[rule_count];
    unsigned long only = 0;
    if (sscanf(text, "%63[^=,]=%d@%lu", rule->name, &rule->result, &only) < 2) {
      fprintf(stderr, "emulated GPU: EMULATOR_FAIL is not name=result[@n],...: %s\n", text);
      abort();
    }
    rule->only = only;
    rule_count++;
  }
}

static void meet(struct stub_call *call) {
  pthread_mutex_lock(&calls_lock);
  if (!rules_read) read_rules();
  if (!call->known) {
    for (unsigned i = 0; i < rule_count; i++)
      if (named(rules[i].name, call->name)) call->rule = &rules[i];
    call->next = calls;
    calls = call;
    __atomic_store_n(&call->known, true, __ATOMIC_RELEASE);
  }
  pthread_mutex_unlock(&calls_lock);
}

static bool fails(struct stub_rule *rule) {
  uint64_t nth = __atomic_add_fetch(&rule->seen, 1, __ATOMIC_RELAXED);
  return !rule->only || rule->only == nth;
}

/* [time][thread][source][severity][call] text */
static void log_failure(const char *call, CUresult result) {
  const char *path = getenv("CUDA_LOG_FILE"), *text;
  FILE *log = path ? fopen(path, "ae") : NULL;
  if (!log) return;
  cuGetErrorString(result, &text);
  time_t now = time(NULL);
  struct tm local;
  char clock[16];
  strftime(clock, sizeof clock, "%H:%M:%S", localtime_r(&now, &local));
  fprintf(log, "[%s.000][%d][CUDA][E][%s] %s\n", clock, gettid(), call, text ? text : "unknown error");
  fclose(log);
}

static int refuse(const struct stub_call *call) {
  while (call->rule->result == -1) pause();
  log_failure(call->name, (CUresult)call->rule->result);
  return call->rule->result;
}

static void pass_gate(void) {
  __atomic_add_fetch(&under_way, 1, __ATOMIC_SEQ_CST);
  while (__atomic_load_n(&gate_closed, __ATOMIC_SEQ_CST)) {
    pthread_mutex_lock(&gate_lock);
    __atomic_sub_fetch(&under_way, 1, __ATOMIC_SEQ_CST);
    pthread_cond_broadcast(&gate_changed);
    while (gate_closed) pthread_cond_wait(&gate_changed, &gate_lock);
    __atomic_add_fetch(&under_way, 1, __ATOMIC_SEQ_CST);
    pthread_mutex_unlock(&gate_lock);
  }
}

int stub_enter(struct stub_call *call, bool early) {
  if (stub.child) return depth++, CUDA_ERROR_NOT_INITIALIZED; /* locks may be held by threads that are not here */
  if (stub_in_callback) return depth++, CUDA_ERROR_NOT_PERMITTED;
  if (!__atomic_load_n(&call->known, __ATOMIC_ACQUIRE)) meet(call);
  __atomic_add_fetch(&call->count, 1, __ATOMIC_RELAXED);
  if (depth++ == 0 && !early) pass_gate();
  else if (depth == 1) depth += 1 << 16; /* an early call has not passed the gate */
  if (call->rule && fails(call->rule)) return refuse(call);
  return stub.initialized || early ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

void stub_leave(int *entered) {
  (void)entered;
  if (--depth == 1 << 16) depth = 0;
  else if (depth == 0 && !stub.child && !stub_in_callback) {
    __atomic_sub_fetch(&under_way, 1, __ATOMIC_SEQ_CST);
    if (!__atomic_load_n(&gate_closed, __ATOMIC_SEQ_CST)) return;
    pthread_mutex_lock(&gate_lock);
    pthread_cond_broadcast(&gate_changed);
    pthread_mutex_unlock(&gate_lock);
  }
}

void stub_gate_open(void) {
  pthread_mutex_lock(&gate_lock);
  __atomic_store_n(&gate_closed, false, __ATOMIC_SEQ_CST);
  pthread_cond_broadcast(&gate_changed);
  pthread_mutex_unlock(&gate_lock);
}

bool stub_gate_close(unsigned timeout_ms) {
  struct timespec end;
  clock_gettime(CLOCK_REALTIME, &end);
  end.tv_sec += timeout_ms / 1000;
  end.tv_nsec += (long)(timeout_ms % 1000) * 1000000;
  if (end.tv_nsec >= 1000000000) end.tv_sec++, end.tv_nsec -= 1000000000;
  pthread_mutex_lock(&gate_lock);
  __atomic_store_n(&gate_closed, true, __ATOMIC_SEQ_CST);
  int late = 0;
  while (__atomic_load_n(&under_way, __ATOMIC_SEQ_CST) > 0 && !late)
    late = timeout_ms ? pthread_cond_timedwait(&gate_changed, &gate_lock, &end) == ETIMEDOUT
                      : pthread_cond_wait(&gate_changed, &gate_lock);
  pthread_mutex_unlock(&gate_lock);
  if (late) stub_gate_open();
  return !late;
}

__attribute__((visibility("default"))) unsigned long stub_calls(const char *name) {
  unsigned long count = 0;
  pthread_mutex_lock(&calls_lock);
  for (struct stub_call *call = calls; call; call = call->next)
    if (named(name, call->name)) count += __atomic_load_n(&call->count, __ATOMIC_RELAXED);
  pthread_mutex_unlock(&calls_lock);
  return count;
}

/* A number, or as much of a uuid as no two devices share; negative: there is no such device. */
static int named_device(const char *text, const char **end, int count) {
  *end = text + strcspn(text, ",");
  size_t length = (size_t)(*end - text);
  int found = -1;
  if (strncmp(text, "GPU-", 4) && strncmp(text, "MIG-", 4)) {
    char *rest;
    long i = strtol(text, &rest, 10);
    return rest == *end && length && i >= 0 && i < count ? (int)i : -1;
  }
  for (int i = 0; i < count; i++) {
    char uuid[MACHINE_UUID_TEXT];
    machine_uuid_text(i, uuid);
    if (strncmp(text, uuid, length)) continue;
    if (found >= 0) return -1;
    found = i;
  }
  return found;
}

static void read_devices(void) {
  size_t all[MACHINE_DEVICES];
  int count = machine_devices(all);
  const char *visible = getenv("CUDA_VISIBLE_DEVICES");
  stub.devices = 0;
  if (!visible)
    for (int i = 0; i < count; i++) stub.device[stub.devices].ordinal = i, stub.device[stub.devices++].bytes = all[i];
  while (visible && *visible && stub.devices < STUB_DEVICES) {
    int i = named_device(visible, &visible, count);
    if (i < 0) break; /* as the real one: the list ends at the first unknown device */
    stub.device[stub.devices].ordinal = i;
    stub.device[stub.devices++].bytes = all[i];
    visible += *visible == ',';
  }
  if (getenv("EMULATOR_MIG") && stub.devices > 1) stub.devices = 1; /* a process sees one instance */
}

static void after_fork(void) { stub.child = stub.initialized; }

static pthread_once_t once = PTHREAD_ONCE_INIT;
static void start(void) {
  machine_directory(stub.directory);
  char path[256];
  const char *parts[] = {"", "/memory"};
  for (unsigned i = 0; i < 2; i++) {
    snprintf(path, sizeof path, "%s%s", stub.directory, parts[i]);
    if (mkdir(path, 0700) && errno != EEXIST) fprintf(stderr, "emulated GPU: %s: %m\n", path), abort();
  }
  stub.context = getenv("EMULATOR_CONTEXT");
  read_devices();
  stub_read_kernel_time();
  pthread_atfork(NULL, NULL, after_fork);
  stub_checkpoint_serve();
  __atomic_store_n(&stub.initialized, true, __ATOMIC_RELEASE);
}

CUresult cuInit(unsigned int flags) {
  ENTER_EARLY(cuInit);
  if (flags) return CUDA_ERROR_INVALID_VALUE;
  pthread_once(&once, start);
  return stub.devices ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}
