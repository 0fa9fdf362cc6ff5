/* Physical memory: one file for each allocation, in use while any process holds its open file description.
 *
 * The holder has a shared flock on the description, which descriptors, their duplicates in other processes and mappings
 * all keep alive.  A file that can be locked exclusively is used by nobody and is removed: so the memory of a killed
 * process comes back by itself, and exported memory outlives its creator.  `lock` in the directory orders all of that. */
#define _GNU_SOURCE
#include "stub.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static struct stub_physical *all;
static unsigned counter;

static int lock_directory(void) { return machine_lock(stub.directory); }

static void path_of(const char *name, char path[300]) { snprintf(path, 300, "%s/memory/%s", stub.directory, name); }

static bool parse(const char *name, int *device, size_t *bytes) {
  int pid;
  return machine_memory(name, device, bytes, &pid);
}

/* Removes the file if nobody uses it.  The directory is locked.  at_once: also that of a process that is being closed. */
static bool reap(const char *name, bool at_once) {
  char path[300];
  path_of(name, path);
  int fd = open(path, O_RDWR | O_CLOEXEC), device, pid = 0;
  size_t bytes;
  if (fd < 0) return true;
  machine_memory(name, &device, &bytes, &pid);
  bool unused = flock(fd, LOCK_EX | LOCK_NB) == 0 && (at_once || !machine_closing(fd, pid));
  if (unused) unlink(path);
  close(fd);
  return unused;
}

static size_t count_used(int device) {
  char path[300];
  path_of("", path);
  DIR *directory = opendir(path);
  size_t used = 0;
  for (struct dirent *entry; directory && (entry = readdir(directory));) {
    int owner;
    size_t bytes;
    if (parse(entry->d_name, &owner, &bytes) && owner == device && !reap(entry->d_name, false)) used += bytes;
  }
  if (directory) closedir(directory);
  return used;
}

size_t stub_used(int device) {
  int lock = lock_directory();
  size_t used = count_used(device);
  close(lock);
  return used;
}

static size_t capacity(int device) {
  for (int i = 0; i < stub.devices; i++)
    if (stub.device[i].ordinal == device) return stub.device[i].bytes;
  return 0;
}

static struct stub_physical *keep(int fd, const char *name, int device, size_t bytes) {
  struct stub_physical *physical = calloc(1, sizeof *physical);
  *physical = (struct stub_physical){.fd = fd, .device = device, .bytes = bytes, .saved = -1, .next = all};
  snprintf(physical->name, sizeof physical->name, "%s", name);
  physical->prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  physical->prop.location = (CUmemLocation){CU_MEM_LOCATION_TYPE_DEVICE, 0};
  for (int i = 0; i < stub.devices; i++)
    if (stub.device[i].ordinal == device) physical->prop.location.id = i;
  return all = physical;
}

/* A locked file of that size, if the device has room for it.  The directory is locked. */
static CUresult make(int device, size_t bytes, char name[64], int *fd) {
  if (count_used(device) + bytes > capacity(device)) return CUDA_ERROR_OUT_OF_MEMORY;
  char path[300];
  snprintf(name, 64, "%d.%zu.%d.%u", device, bytes, getpid(), counter++);
  path_of(name, path);
  *fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (*fd < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  if (!flock(*fd, LOCK_SH) && !ftruncate(*fd, (off_t)bytes)) return CUDA_SUCCESS;
  close(*fd);
  return CUDA_ERROR_OPERATING_SYSTEM;
}

/* False: the host has no memory for it. */
static bool fill(int fd, unsigned char content, size_t bytes) {
  enum { CHUNK = 1 << 18 };
  unsigned char chunk[CHUNK];
  memset(chunk, content, CHUNK);
  for (size_t at = 0, n; at < bytes; at += n) {
    n = bytes - at < CHUNK ? bytes - at : CHUNK;
    if (pwrite(fd, chunk, n, (off_t)at) != (ssize_t)n) return false;
  }
  return true;
}

CUresult stub_physical_new(int device, size_t bytes, unsigned char content, struct stub_physical **physical) {
  char name[64];
  int fd, lock = lock_directory();
  CUresult result = make(device, bytes, name, &fd);
  close(lock); /* the lock of the ranges is never taken with this one held */
  if (result) return result;
  if (content && !fill(fd, content, bytes)) return close(fd), CUDA_ERROR_OUT_OF_MEMORY;
  stub_ranges_lock();
  *physical = keep(fd, name, device, bytes);
  stub_ranges_unlock();
  return CUDA_SUCCESS;
}

CUresult stub_physical_refill(struct stub_physical *physical) {
  int lock = lock_directory();
  CUresult result = make(physical->device, physical->bytes, physical->name, &physical->fd);
  close(lock);
  if (result) physical->fd = -1;
  return result;
}

void stub_physical_empty(struct stub_physical *physical) {
  int lock = lock_directory();
  if (physical->fd >= 0) close(physical->fd);
  physical->fd = -1;
  reap(physical->name, true);
  close(lock);
}

CUresult stub_physical_import(int fd, struct stub_physical **physical) {
  char link[64], path[300], prefix[300];
  int device;
  size_t bytes;
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t length = readlink(link, path, sizeof path - 1);
  if (length < 0) return CUDA_ERROR_INVALID_VALUE;
  path[length] = 0;
  char real[300];
  path_of("", prefix);
  if (!realpath(prefix, real)) return CUDA_ERROR_OPERATING_SYSTEM;
  size_t start = strlen(real);
  if (strncmp(path, real, start) || path[start] != '/' || !parse(path + start + 1, &device, &bytes))
    return CUDA_ERROR_INVALID_VALUE;
  if (!capacity(device)) return CUDA_ERROR_INVALID_DEVICE;
  int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (own < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  stub_ranges_lock();
  *physical = keep(own, path + start + 1, device, bytes);
  (*physical)->shared = true;
  (*physical)->prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  stub_ranges_unlock();
  return CUDA_SUCCESS;
}

CUresult stub_physical_open(const char *name, struct stub_physical **physical) {
  char path[300];
  int device;
  size_t bytes;
  if (!parse(name, &device, &bytes)) return CUDA_ERROR_INVALID_VALUE;
  path_of(name, path);
  int lock = lock_directory();
  bool unused = reap(name, true);
  int fd = unused ? -1 : open(path, O_RDWR | O_CLOEXEC);
  if (fd >= 0) flock(fd, LOCK_SH);
  close(lock);
  if (fd < 0) return CUDA_ERROR_INVALID_VALUE;
  stub_ranges_lock();
  *physical = keep(fd, name, device, bytes);
  (*physical)->shared = true;
  stub_ranges_unlock();
  return CUDA_SUCCESS;
}

void stub_physical_drop(struct stub_physical *physical) {
  stub_ranges_lock();
  if (!physical->handles && !physical->maps) {
    struct stub_physical **at = &all;
    while (*at != physical) at = &(*at)->next;
    *at = physical->next;
    stub_physical_empty(physical);
    free(physical);
  }
  stub_ranges_unlock();
}

bool stub_physical_valid(const struct stub_physical *physical) {
  stub_ranges_lock();
  struct stub_physical *at = all;
  while (at && at != physical) at = at->next;
  stub_ranges_unlock();
  return at && at->handles;
}

struct stub_physical *stub_physicals(void) { return all; }
