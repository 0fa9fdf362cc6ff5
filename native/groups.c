#include "groups.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define MOST_OPEN 256
#define TAKE_OVER_US 10000 /* so often it is looked whether the process that copies still lives */

enum { IDLE = 0, BUSY = 1, ENDED = 2 };

struct cp_groups {
  char *to;         /* the weights' memory: written here, */
  char *at;         /* and computed with here */
  const char *from; /* the image */
  struct cp_groups_header *header;
  uint64_t *bounds;
  uint8_t *open; /* this process may read the group; written after the access has changed */
  size_t bytes;
  uint32_t count;
  char path[32]; /* for descriptions of our own, whose locks others' do not share */
  int device;
  pthread_t thread;
  uint32_t busy, stop;
  uint32_t loads;
  uint64_t touches, waited_us;
};

static struct cp_groups *opened[MOST_OPEN]; /* read in the trap */
static struct cp_lock opened_lock;

int cp_signals_start(void);

/* ---- the header ------------------------------------------------------------------------------------------------------ */

static bool is_there(const struct cp_groups *g, uint32_t k) { return cp_load(&g->header->state[k]) == CP_GROUP_THERE; }

static void wake(struct cp_groups *g) {
  cp_add(&g->header->sequence, 1);
  if (cp_load(&g->header->sleepers)) cp_futex_wake(&g->header->sequence);
}

static void sleep_on(struct cp_groups *g, uint32_t sequence, int64_t timeout_us) {
  cp_add(&g->header->sleepers, 1);
  cp_futex_wait(&g->header->sequence, sequence, timeout_us);
  cp_add(&g->header->sleepers, -1);
}

/* The right to write: returns the descriptor that holds it, -1 if somebody else does, -2 if it cannot be had. */
static int lock(const struct cp_groups *g) {
  struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};
  int fd = (int)syscall(SYS_openat, AT_FDCWD, g->path, O_RDWR | O_CLOEXEC);
  if (fd < 0) return -2;
  if (!syscall(SYS_fcntl, fd, F_OFD_SETLK, &whole)) return fd;
  int error = errno;
  syscall(SYS_close, fd);
  return error == EAGAIN || error == EACCES ? -1 : -2;
}

static void unlock(int fd) { syscall(SYS_close, fd); }

static bool is_ours(const struct cp_groups *g, const uint8_t *key) {
  const struct cp_groups_header *h = g->header;
  return cp_load(&h->magic) == CP_GROUPS_MAGIC && h->count == g->count && !memcmp(h->key, key, CP_GROUPS_KEY);
}

/* Make the header that of these weights.  Killed in between, it is nobody's. */
static int claim(struct cp_groups *g, const uint8_t *key) {
  struct cp_groups_header *h = g->header;
  if (is_ours(g, key)) return 0;
  int fd = lock(g);
  if (fd < 0) return fd == -1 ? EBUSY : errno;
  if (!is_ours(g, key)) {
    cp_store(&h->magic, 0);
    for (uint32_t k = 0; k < g->count; k++) cp_store(&h->state[k], CP_GROUP_EMPTY);
    cp_store(&h->count, g->count);
    cp_store(&h->sleepers, 0);
    memcpy(h->key, key, CP_GROUPS_KEY);
    cp_store(&h->magic, CP_GROUPS_MAGIC);
  }
  unlock(fd);
  return 0;
}

/* ---- access ---------------------------------------------------------------------------------------------------------- */

static void protect(struct cp_groups *g, uint32_t k, int access) {
  if (!mprotect(g->at + g->bounds[k], g->bounds[k + 1] - g->bounds[k], access)) return;
  static const char message[] = "carpool: too many mappings for the groups of a model (sysctl vm.max_map_count)\n";
  syscall(SYS_write, STDERR_FILENO, message, sizeof message - 1);
  abort();
}

static void admit(struct cp_groups *g, uint32_t k) {
  if (cp_load(&g->open[k]) || g->bounds[k] == g->bounds[k + 1]) return;
  protect(g, k, PROT_READ);
  cp_store(&g->open[k], 1);
}

static void shut(struct cp_groups *g, uint32_t k) {
  if (!cp_load(&g->open[k])) return;
  cp_store(&g->open[k], 0);
  protect(g, k, PROT_NONE);
}

/* ---- bringing -------------------------------------------------------------------------------------------------------- */

/* A group can be read here before anybody hears that it is there: so hardly a touch is trapped. */
static void bring(struct cp_groups *g, uint32_t k) {
  bool copy = !is_there(g, k);
  if (copy) memcpy(g->to + g->bounds[k], g->from + g->bounds[k], g->bounds[k + 1] - g->bounds[k]);
  admit(g, k);
  if (!copy) return;
  cp_store(&g->header->state[k], CP_GROUP_THERE);
  wake(g);
}

/* Another process copies: follow it.  Returns whether all is there. */
static bool follow(struct cp_groups *g, uint32_t sequence) {
  bool all = true;
  for (uint32_t k = 0; k < g->count; k++) {
    if (is_there(g, k))
      admit(g, k);
    else
      all = false;
  }
  if (!all) sleep_on(g, sequence, TAKE_OVER_US);
  return all;
}

static void *transfer(void *groups) {
  struct cp_groups *g = groups;
  while (!cp_load(&g->stop)) {
    uint32_t sequence = cp_load(&g->header->sequence);
    int fd = lock(g);
    if (fd >= 0) {
      for (uint32_t k = 0; k < g->count && !cp_load(&g->stop); k++) bring(g, k);
      unlock(fd);
      break;
    }
    if (follow(g, sequence)) break;
  }
  cp_store(&g->busy, ENDED);
  wake(g); /* also for those whom a process that died had not woken */
  return NULL;
}

static void join(struct cp_groups *g) {
  if (cp_load(&g->busy) == IDLE) return;
  pthread_join(g->thread, NULL);
  cp_store(&g->busy, IDLE);
}

static bool is_ready(const struct cp_groups *g) {
  for (uint32_t k = 0; k < g->count; k++)
    if (!is_there(g, k) || (!cp_load(&g->open[k]) && g->bounds[k] != g->bounds[k + 1])) return false;
  return true;
}

CP_EXPORT int cp_groups_load(struct cp_groups *g) {
  if (cp_load(&g->busy) == BUSY || is_ready(g)) return 0;
  join(g);
  g->loads++;
  for (uint32_t k = 0; k < g->count; k++)
    if (!is_there(g, k)) shut(g, k);
  cp_store(&g->stop, 0);
  cp_store(&g->busy, BUSY);
  int error = pthread_create(&g->thread, NULL, transfer, g);
  if (error) cp_store(&g->busy, IDLE);
  return error;
}

CP_EXPORT int cp_groups_wait(struct cp_groups *g, uint32_t n) {
  for (uint32_t k = 0; k < n && k < g->count; k++) {
    for (;;) {
      uint32_t sequence = cp_load(&g->header->sequence);
      if (is_there(g, k)) break;
      if (cp_load(&g->busy) != BUSY) return ECANCELED;
      sleep_on(g, sequence, -1);
    }
  }
  return 0;
}

CP_EXPORT void cp_groups_stop(struct cp_groups *g) {
  cp_store(&g->stop, 1);
  wake(g);
  join(g);
}

CP_EXPORT int cp_groups_drop(struct cp_groups *g) {
  int fd = lock(g);
  if (fd < 0) return fd == -1 ? EBUSY : errno;
  for (uint32_t k = 0; k < g->count; k++) cp_store(&g->header->state[k], CP_GROUP_EMPTY);
  unlock(fd);
  return 0;
}

CP_EXPORT uint32_t cp_groups_there(const struct cp_groups *g) {
  uint32_t n = 0;
  for (uint32_t k = 0; k < g->count; k++) n += is_there(g, k);
  return n;
}

CP_EXPORT const void *cp_groups_address(const struct cp_groups *g) { return g->at; }

CP_EXPORT void cp_groups_waits(const struct cp_groups *g, uint64_t *touches, uint64_t *waited_us) {
  *touches = cp_load(&g->touches);
  *waited_us = cp_load(&g->waited_us);
}

/* ---- the trap -------------------------------------------------------------------------------------------------------- */

static struct cp_groups *owner_of(const char *address) {
  for (int i = 0; i < MOST_OPEN; i++) {
    struct cp_groups *g = cp_load(&opened[i]);
    if (g && address >= g->at + g->bounds[0] && address < g->at + g->bytes) return g;
  }
  return NULL;
}

static uint32_t group_at(const struct cp_groups *g, uint64_t offset) {
  uint32_t low = 0, high = g->count;
  while (high - low > 1) {
    uint32_t middle = low + (high - low) / 2;
    *(g->bounds[middle] <= offset ? &low : &high) = middle;
  }
  return low;
}

/* Another thread may have opened the group since the touch.  If the same touch fails again, it was a write. */
static bool try_again(const struct cp_groups *g, const void *address) {
  static __thread const void *last __attribute__((tls_model("initial-exec")));
  static __thread uint32_t load __attribute__((tls_model("initial-exec")));
  bool again = last != address || load != g->loads;
  last = address;
  load = g->loads;
  return again;
}

bool cp_groups_trap(const void *address) {
  struct cp_groups *g = owner_of(address);
  if (!g) return false;
  uint32_t k = group_at(g, (uint64_t)((const char *)address - g->at));
  if (cp_load(&g->open[k])) return try_again(g, address);
  uint64_t begin = cp_now_us();
  cp_add(&g->touches, 1);
  for (;;) {
    uint32_t sequence = cp_load(&g->header->sequence);
    if (is_there(g, k)) break;
    sleep_on(g, sequence, -1);
  }
  admit(g, k);
  cp_add(&g->waited_us, cp_now_us() - begin);
  return true;
}

/* ---- open and close -------------------------------------------------------------------------------------------------- */

static bool well_formed(const uint64_t *bounds, uint32_t count) {
  if (!count || count > CP_GROUPS_MOST) return false;
  if (bounds[0] < sizeof(struct cp_groups_header) + (uint64_t)count * sizeof(uint32_t)) return false;
  for (uint32_t k = 0; k <= count; k++)
    if (bounds[k] % CP_PAGE || (k && bounds[k] < bounds[k - 1])) return false;
  return true;
}

static bool has_bytes(int fd, uint64_t bytes) {
  struct stat status;
  return !fstat(fd, &status) && (uint64_t)status.st_size >= bytes;
}

/* NULL instead of MAP_FAILED.  Pages and their tables are made now, so that no touch costs that later. */
static void *map(int fd, size_t bytes, int access, int kind) {
  void *p = mmap(NULL, bytes, access, kind | MAP_POPULATE, fd, 0);
  return p == MAP_FAILED ? NULL : p;
}

static void release(struct cp_groups *g) {
  if (g->to) munmap(g->to, g->bytes);
  if (g->at) munmap(g->at, g->bytes);
  if (g->from) munmap((void *)(uintptr_t)g->from, g->bytes);
  if (g->device >= 0) close(g->device);
  free(g->bounds);
  free(g->open);
  free(g);
}

/* A sealed image cannot be mapped shared everywhere; a private mapping has the same pages. */
static int map_all(struct cp_groups *g, int device, int image) {
  if ((g->device = fcntl(device, F_DUPFD_CLOEXEC, 0)) < 0) return errno;
  snprintf(g->path, sizeof g->path, "/proc/self/fd/%d", g->device);
  if (!(g->to = map(device, g->bytes, PROT_READ | PROT_WRITE, MAP_SHARED))) return errno;
  if (!(g->from = map(image, g->bytes, PROT_READ, MAP_PRIVATE))) return errno;
  if (!(g->at = map(device, g->bytes, PROT_READ, MAP_SHARED))) return errno;
  g->header = (struct cp_groups_header *)g->to;
  return mprotect(g->at, g->bytes, PROT_NONE) ? errno : 0;
}

static int enlist(struct cp_groups *g) {
  int error = EMFILE;
  cp_acquire(&opened_lock);
  for (int i = 0; i < MOST_OPEN && error; i++) {
    if (opened[i]) continue;
    cp_store(&opened[i], g);
    error = 0;
  }
  cp_release(&opened_lock);
  return error;
}

static struct cp_groups *make(const uint64_t *bounds, uint32_t count) {
  struct cp_groups *g = calloc(1, sizeof *g);
  if (!g) return NULL;
  g->device = -1;
  g->count = count;
  g->bytes = bounds[count];
  g->bounds = malloc((count + (size_t)1) * sizeof *bounds);
  g->open = calloc(count, 1);
  if (g->bounds && g->open) {
    memcpy(g->bounds, bounds, (count + (size_t)1) * sizeof *bounds);
    return g;
  }
  release(g);
  return NULL;
}

CP_EXPORT struct cp_groups *cp_groups_open(int device, int image, const uint64_t *bounds, uint32_t count,
                                           const uint8_t *key) {
  if (!well_formed(bounds, count) || !has_bytes(device, bounds[count]) || !has_bytes(image, bounds[count])) {
    errno = EINVAL;
    return NULL;
  }
  struct cp_groups *g = make(bounds, count);
  if (!g) return NULL;
  int error = map_all(g, device, image);
  if (!error) error = claim(g, key);
  if (!error && cp_signals_start()) error = errno;
  if (!error) error = enlist(g);
  if (!error) return g;
  release(g);
  errno = error;
  return NULL;
}

CP_EXPORT void cp_groups_close(struct cp_groups *g) {
  cp_groups_stop(g);
  cp_acquire(&opened_lock);
  for (int i = 0; i < MOST_OPEN; i++)
    if (opened[i] == g) cp_store(&opened[i], NULL);
  cp_release(&opened_lock);
  release(g);
}
