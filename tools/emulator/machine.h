/* The machine that the driver and NVML agree on: its devices, their names, and where its state lies.  From the environment:
 *
 *   EMULATOR_STATE    directory with the state that processes share.  Default /dev/shm/carpool-emulator.<uid>
 *   EMULATOR_DEVICES  capacities, one per device: "256MiB,1GiB" (default one of 1GiB)
 *   EMULATOR_CLOSE_MS for so many milliseconds the memory of a process that has ended stays in use (default 0)
 *   EMULATOR_MIG      set: devices are instances of partitioned GPUs ("MIG-6361...")
 *   EMULATOR_CUDA     version of CUDA that driver and NVML say they are for: "12080" (default 13000)
 *   EMULATOR_ATTRIBUTES   values of another card, by the numbers of CUdevice_attribute: "16=132,81=227328"
 *   EMULATOR_COMPUTE_MODE  "EXCLUSIVE_PROCESS": one process at a time has a context; "PROHIBITED": no process has
 *
 * In the directory, `memory` has a file for each physical allocation; its name says the device, the bytes, the process and
 * a number.  Who looks at several of them holds a lock on the file `lock`.
 *
 * May include: nothing but the standard library. */
#ifndef CARPOOL_EMULATOR_MACHINE_H
#define CARPOOL_EMULATOR_MACHINE_H
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { MACHINE_DEVICES = 16, MACHINE_PATH = 200, MACHINE_VERSION = 13000 };
enum { MACHINE_UUID_TEXT = sizeof "GPU-00000000-0000-0000-0000-000000000000" };

static inline void machine_directory(char directory[MACHINE_PATH]) {
  const char *named = getenv("EMULATOR_STATE");
  if (named) snprintf(directory, MACHINE_PATH, "%s", named);
  else snprintf(directory, MACHINE_PATH, "/dev/shm/carpool-emulator.%u", getuid());
}

/* -1 with errno where the directory is none of this machine's.  Closing the descriptor unlocks. */
static inline int machine_lock(const char *directory) {
  char path[MACHINE_PATH + 8];
  snprintf(path, sizeof path, "%s/lock", directory);
  int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  while (fd >= 0 && flock(fd, LOCK_EX) && errno == EINTR) continue;
  return fd;
}

static inline bool machine_memory(const char *name, int *device, size_t *bytes, int *pid) {
  int length = 0;
  return sscanf(name, "%d.%zu.%d.%*u%n", device, bytes, pid, &length) == 3 && length == (int)strlen(name);
}

/* Of memory that nobody has locked: has its process ended, and is it still being closed?  That begins when it is first
 * asked, which the file's mode notes. */
static inline bool machine_closing(int fd, int pid) {
  const char *delay = getenv("EMULATOR_CLOSE_MS");
  struct stat file;
  struct timespec now;
  if (!delay || !kill(pid, 0) || fstat(fd, &file)) return false;
  if (!(file.st_mode & S_IXUSR)) return !fchmod(fd, 0700) && !futimens(fd, NULL);
  clock_gettime(CLOCK_REALTIME, &now);
  return (now.tv_sec - file.st_mtim.tv_sec) * 1000 + (now.tv_nsec - file.st_mtim.tv_nsec) / 1000000 < atol(delay);
}

static inline size_t machine_size(const char *text, const char **end) {
  char *rest;
  size_t value = strtoull(text, &rest, 10);
  const char *units = "KMGT";
  const char *unit = *rest ? strchr(units, *rest) : NULL;
  if (unit) {
    value <<= 10 * (size_t)(unit - units + 1);
    rest += strncmp(rest + 1, "iB", 2) ? 1 : 3;
  }
  *end = rest;
  return value;
}

/* How many there are; ends the process with a message where the variable cannot be read. */
static inline int machine_devices(size_t bytes[MACHINE_DEVICES]) {
  int count = 0;
  const char *text = getenv("EMULATOR_DEVICES");
  for (const char *at = text ? text : "1GiB"; *at && count < MACHINE_DEVICES; at += *at == ',') {
    bytes[count++] = machine_size(at, &at);
    if (*at && *at != ',') fprintf(stderr, "emulated GPU: EMULATOR_DEVICES: %s\n", text), abort();
  }
  return count;
}

static inline int machine_version(void) {
  const char *version = getenv("EMULATOR_CUDA");
  return version ? atoi(version) : MACHINE_VERSION;
}

/* The one of EMULATOR_ATTRIBUTES with that number; `otherwise` where it says nothing. */
static inline int machine_attribute(int attribute, int otherwise) {
  int number, value;
  for (const char *at = getenv("EMULATOR_ATTRIBUTES"); at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
    if (sscanf(at, "%d=%d", &number, &value) == 2 && number == attribute) return value;
  return otherwise;
}

#define MACHINE_NAME "Carpool emulated GPU"
enum { MACHINE_MAJOR = 8, MACHINE_MINOR = 0 }; /* compute capability */
enum { MACHINE_DEFAULT = 0, MACHINE_PROHIBITED = 2, MACHINE_EXCLUSIVE_PROCESS = 3 }; /* the numbers of driver and NVML */

static inline int machine_compute_mode(void) {
  const char *mode = getenv("EMULATOR_COMPUTE_MODE");
  if (!mode || !strcmp(mode, "DEFAULT")) return MACHINE_DEFAULT;
  if (!strcmp(mode, "EXCLUSIVE_PROCESS")) return MACHINE_EXCLUSIVE_PROCESS;
  if (!strcmp(mode, "PROHIBITED")) return MACHINE_PROHIBITED;
  fprintf(stderr, "emulated GPU: EMULATOR_COMPUTE_MODE: %s\n", mode), abort();
}

static inline void machine_uuid(int device, char bytes[16]) {
  memcpy(bytes, "carpool-stub-gpu", 16);
  bytes[15] = (char)('0' + device);
}
static inline void machine_uuid_text(int device, char text[MACHINE_UUID_TEXT]) {
  char uuid[16];
  machine_uuid(device, uuid);
  char *at = text + sprintf(text, "%s", getenv("EMULATOR_MIG") ? "MIG" : "GPU");
  for (unsigned i = 0; i < sizeof uuid; i++) {
    bool dash = i == 0 || i == 4 || i == 6 || i == 8 || i == 10;
    at += sprintf(at, "%s%02x", dash ? "-" : "", (unsigned char)uuid[i]);
  }
}
#endif
