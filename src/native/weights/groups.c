#include "weights/groups_state.h"
#include "base/core_dump.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define CLAIMS 1000
#define TAKE_OVER_US 10000 /* so often it is looked whether the process that copies still lives */

static uint32_t loads;

/* ---- the header ------------------------------------------------------------------------------------------------------ */

/* Sleepers are not counted: one may fall asleep on one header and wake up when there is another. */
void cp_groups_wake(struct cp_groups *g) {
  cp_add(&g->header->sequence, 1);
  cp_futex_wake(&g->header->sequence);
}

void cp_groups_sleep(struct cp_groups *g, uint32_t sequence, int64_t timeout_us) {
  cp_futex_wait(&g->header->sequence, sequence, timeout_us);
}

/* The right to write: returns the descriptor that holds it, or -1 and errno, EBUSY if another process does. */
static int lock(const struct cp_groups *g) {
  struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};
  int fd = (int)syscall(SYS_openat, AT_FDCWD, g->path, O_RDWR | O_CLOEXEC);
  if (fd < 0) return -1;
  if (!syscall(SYS_fcntl, fd, F_OFD_SETLK, &whole)) return fd;
  int error = errno;
  syscall(SYS_close, fd);
  errno = error == EAGAIN || error == EACCES ? EBUSY : error;
  return -1;
}

static void unlock(int fd) { syscall(SYS_close, fd); }

static bool is_ours(const struct cp_groups *g) {
  const struct cp_groups_header *h = g->header;
  return cp_load(&h->magic) == CP_GROUPS_MAGIC && h->count == g->count && !memcmp(h->key, g->key, CP_GROUPS_KEY);
}

/* Make the header that of these weights.  Killed in between, it is nobody's. */
static int claim(struct cp_groups *g) {
  struct cp_groups_header *h = g->header;
  if (is_ours(g)) return 0;
  int fd = lock(g);
  if (fd < 0) return errno;
  if (!is_ours(g)) {
    cp_store(&h->magic, 0);
    for (uint32_t k = 0; k < g->count; k++) cp_store(&h->state[k], CP_GROUP_EMPTY);
    cp_store(&h->count, g->count);
    memcpy(h->key, g->key, CP_GROUPS_KEY);
    cp_store(&h->magic, CP_GROUPS_MAGIC);
  }
  unlock(fd);
  return 0;
}

/* ---- access ---------------------------------------------------------------------------------------------------------- */

static void set_open(struct cp_groups *g, uint32_t k, bool open) {
  if (g->carrier->give && g->bounds[k] != g->bounds[k + 1]) g->carrier->give(g, k, open);
  cp_store(&g->open[k], open);
}

/* Access lock held. */
static void settle(struct cp_groups *g) {
  if (!cp_load(&g->moved)) return;
  g->carrier->remap(g);
  for (uint32_t k = 0; k < g->count; k++) cp_store(&g->open[k], false);
  cp_store(&g->dropped, 0);
  cp_store(&g->moved, 0);
}

void cp_groups_admit(struct cp_groups *g, uint32_t k) {
  if (cp_load(&g->open[k])) return;
  cp_acquire(&g->access);
  settle(g);
  if (!cp_load(&g->open[k]) && !cp_load(&g->barred)) set_open(g, k, true);
  cp_release(&g->access);
}

static void shut(struct cp_groups *g, bool all) {
  cp_acquire(&g->access);
  settle(g);
  cp_release(&g->access);
  for (uint32_t k = 0; k < g->count; k++) {
    cp_acquire(&g->access);
    if (cp_load(&g->open[k]) && (all || !cp_groups_has(g, k))) set_open(g, k, false);
    cp_release(&g->access);
  }
}

CP_EXPORT void cp_groups_shut(struct cp_groups *g) { shut(g, false); }

void cp_groups_let_go(struct cp_groups *g) {
  cp_acquire(&g->access);
  if (cp_load(&g->dropped)) {
    g->carrier->forget(g);
    for (uint32_t k = 0; k < g->count; k++)
      if (cp_load(&g->open[k])) set_open(g, k, false);
    cp_store(&g->dropped, 0);
  }
  cp_release(&g->access);
}

/* ---- bringing -------------------------------------------------------------------------------------------------------- */

static bool finished(struct cp_groups *g, uint32_t k) {
  if (cp_groups_has(g, k)) return true;
  if (!g->carrier->finish(g, k)) return false;
  cp_store(&g->header->state[k], CP_GROUP_THERE);
  cp_groups_wake(g);
  return true;
}

static bool started(struct cp_groups *g, uint32_t k) { return cp_groups_has(g, k) || g->carrier->start(g, k); }

/* What has been started is finished, also if the load is stopped meanwhile.  False: a copy has failed. */
static bool bring_rest(struct cp_groups *g) {
  bool starts = g->carrier->start, good = true;
  uint32_t n = starts ? 0 : g->count;
  while (starts && good && n < g->count && !cp_load(&g->stop)) n += good = started(g, n);
  for (uint32_t k = 0; k < n && (starts || !cp_load(&g->stop)); k++) good &= finished(g, k);
  return good;
}

/* Returns when all is there, the load has been stopped, or a copy has failed. */
static void bring_all(struct cp_groups *g) {
  bool good = !g->carrier->ready || g->carrier->ready(g);
  while (good && !cp_load(&g->stop) && cp_groups_there(g) < g->count) {
    uint32_t sequence = cp_load(&g->header->sequence);
    int fd = lock(g);
    if (fd < 0) { /* another process copies; does it still live? */
      cp_groups_sleep(g, sequence, TAKE_OVER_US);
      continue;
    }
    good = bring_rest(g);
    unlock(fd);
  }
}

static void *transfer(void *groups) {
  struct cp_groups *g = groups;
  bring_all(g);
  cp_store(&g->busy, CP_GROUPS_ENDED);
  cp_groups_wake(g); /* also those whom a process that died had not woken */
  for (uint32_t k = 0; k < g->count && !cp_load(&g->stop); k++)
    if (cp_groups_has(g, k)) cp_groups_admit(g, k);
  return NULL;
}

static void join(struct cp_groups *g) {
  if (cp_load(&g->busy) == CP_GROUPS_IDLE) return;
  cp_store(&g->stop, 1);
  cp_groups_wake(g);
  pthread_join(g->thread, NULL);
  cp_store(&g->busy, CP_GROUPS_IDLE);
}

static bool is_ready(const struct cp_groups *g) {
  if (cp_load(&g->moved) || !is_ours(g)) return false;
  for (uint32_t k = 0; k < g->count; k++)
    if (!cp_groups_has(g, k) || !cp_load(&g->open[k])) return false;
  return true;
}

/* Another process may just be making the header. */
static int claim_again(struct cp_groups *g) {
  int error;
  for (int i = 0; (error = claim(g)) == EBUSY && i < CLAIMS; i++)
    syscall(SYS_nanosleep, &(struct timespec){.tv_nsec = 1000000}, NULL);
  return error;
}

/* Where the turn has been lost a file may be others' meanwhile: nothing is done there before the next one. */
static int claim_unless_lost(struct cp_groups *g) {
  if (!g->carrier->remap || !cp_service_lost()) return claim_again(g);
  cp_store(&g->barred, 1);
  return 0;
}

/* Signals are for the program's own threads. */
static int start_thread(struct cp_groups *g) {
  sigset_t all, old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  int error = pthread_create(&g->thread, NULL, transfer, g);
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  return error;
}

static int begin(struct cp_groups *g) {
  if (cp_load(&g->busy) == CP_GROUPS_BUSY || is_ready(g)) return 0;
  join(g);
  int error = claim_again(g);
  if (error) return error;
  if (g->carrier->start) cp_groups_shut(g); /* what was started is there, or has failed */
  g->load = cp_add(&loads, 1);
  cp_store(&g->stop, 0);
  cp_store(&g->busy, CP_GROUPS_BUSY);
  error = start_thread(g);
  if (error) cp_store(&g->busy, CP_GROUPS_IDLE);
  return error;
}

CP_EXPORT int cp_groups_load(struct cp_groups *g) {
  if (cp_load(&g->barred) && cp_service_lost()) return 0; /* they come back with the turn */
  cp_store(&g->due, 0);
  return cp_groups_bring(g);
}

int cp_groups_bring(struct cp_groups *g) {
  cp_acquire(&g->transfers);
  cp_store(&g->barred, 0);
  cp_acquire(&g->access); /* a thread that closes them has done so, or does not any more */
  cp_store(&g->dropped, 0);
  cp_release(&g->access);
  int error = begin(g);
  cp_release(&g->transfers);
  if (!g->carrier->start && (cp_load(&g->busy) == CP_GROUPS_BUSY || cp_load(&g->moved)))
    cp_groups_shut(g); /* the thread is under way meanwhile */
  return error;
}

void cp_groups_close_all(struct cp_groups *g) {
  cp_store(&g->barred, 1);
  cp_store(&g->due, 1);
  cp_groups_stop(g);
  shut(g, true);
}

CP_EXPORT int cp_groups_wait(struct cp_groups *g, uint32_t n) {
  int error = cp_groups_await(g, n);
  return g->carrier->start && cp_load(&g->due) ? 0 : error; /* the gate waits */
}

int cp_groups_await(struct cp_groups *g, uint32_t n) {
  for (uint32_t k = 0; k < n && k < g->count; k++) {
    for (;;) {
      uint32_t sequence = cp_load(&g->header->sequence);
      if (cp_groups_has(g, k)) break;
      if (cp_load(&g->busy) != CP_GROUPS_BUSY) return ECANCELED;
      cp_groups_sleep(g, sequence, -1);
    }
  }
  return 0;
}

CP_EXPORT void cp_groups_stop(struct cp_groups *g) {
  cp_acquire(&g->transfers);
  join(g);
  cp_release(&g->transfers);
}

CP_EXPORT int cp_groups_drop(struct cp_groups *g) {
  if (cp_load(&g->busy) == CP_GROUPS_BUSY) return EBUSY;
  cp_groups_stop(g);
  int fd = lock(g);
  if (fd < 0) return errno;
  for (uint32_t k = 0; k < g->count; k++) cp_store(&g->header->state[k], CP_GROUP_EMPTY);
  unlock(fd);
  cp_groups_shut(g);
  return 0;
}

CP_EXPORT uint32_t cp_groups_there(const struct cp_groups *g) {
  uint32_t n = 0;
  for (uint32_t k = 0; k < g->count; k++) n += cp_groups_has(g, k);
  return n;
}

CP_EXPORT const void *cp_groups_address(const struct cp_groups *g) { return g->at; }

CP_EXPORT void cp_groups_waits(const struct cp_groups *g, uint64_t *touches, uint64_t *waited_us) {
  *touches = cp_load(&g->touches);
  *waited_us = cp_load(&g->waited_us);
}

/* ---- open, move and close -------------------------------------------------------------------------------------------- */

static bool well_formed(const uint64_t *bounds, uint32_t count) {
  if (!count || count > CP_GROUPS_MOST) return false;
  if (bounds[0] < sizeof(struct cp_groups_header) + (uint64_t)count * sizeof(uint32_t)) return false;
  for (uint32_t k = 0; k <= count; k++)
    if (bounds[k] % CP_PAGE || (k && bounds[k] < bounds[k - 1])) return false;
  return true;
}

void *cp_groups_map(int fd, size_t bytes, int access, int kind) {
  void *p = mmap(NULL, bytes, access, kind, fd, 0);
  return p == MAP_FAILED ? NULL : p;
}

static void release(struct cp_groups *g) {
  g->carrier->close(g);
  if (g->header) munmap(g->header, g->bounds[0]);
  if (g->from) munmap((void *)(uintptr_t)g->from, g->bytes);
  if (g->device >= 0) close(g->device);
  free(g->bounds);
  free(g->open);
  free(g);
}

static bool is_file(int fd, int other) {
  struct stat a, b;
  return !cp_fstat(fd, &a) && !cp_fstat(other, &b) && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

static int replace_file(struct cp_groups *g, int device) {
  void *header = mmap(g->header, g->bounds[0], PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, device, 0);
  if (header == MAP_FAILED || syscall(SYS_dup3, device, g->device, O_CLOEXEC) < 0) return errno;
  g->carrier->change(g);
  cp_store(&g->moved, 1);
  return claim_unless_lost(g);
}

CP_EXPORT int cp_groups_move(struct cp_groups *g, int device) {
  if (is_file(g->device, device)) return 0;
  if (!g->carrier->remap || !cp_has_bytes(device, g->bytes)) return EINVAL;
  cp_acquire(&g->transfers);
  join(g);
  int error = replace_file(g, device);
  cp_release(&g->transfers);
  return error;
}

/* A pin copies every page of a private mapping.  Before Linux 6.7 a sealed file cannot be mapped in another way. */
static const char *map_image(int image, size_t bytes) {
  const char *shared = cp_groups_map(image, bytes, PROT_READ, MAP_SHARED);
  return shared ? shared : cp_groups_map(image, bytes, PROT_READ, MAP_PRIVATE);
}

static int map_both(struct cp_groups *g, int device, int image) {
  if ((g->device = fcntl(device, F_DUPFD_CLOEXEC, 0)) < 0) return errno;
  snprintf(g->path, sizeof g->path, "/proc/self/fd/%d", g->device);
  if (!(g->header = cp_groups_map(device, g->bounds[0], PROT_READ | PROT_WRITE, MAP_SHARED))) return errno;
  if (!(g->from = map_image(image, g->bytes))) return errno;
  cp_leave_out_of_cores((void *)(uintptr_t)g->from, g->bytes);
  return 0;
}

static struct cp_groups *make(const struct cp_carrier *carrier, const uint64_t *bounds, uint32_t count) {
  struct cp_groups *g = calloc(1, sizeof *g);
  if (!g) return NULL;
  g->carrier = carrier;
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

struct cp_groups *cp_groups_make(const struct cp_carrier *carrier, char *at, int device, int image,
                                 const uint64_t *bounds, uint32_t count, const uint8_t *key) {
  if (!well_formed(bounds, count) || !cp_has_bytes(device, bounds[count]) || !cp_has_bytes(image, bounds[count])) {
    errno = EINVAL;
    return NULL;
  }
  struct cp_groups *g = make(carrier, bounds, count);
  if (!g) return NULL;
  g->at = at;
  memcpy(g->key, key, CP_GROUPS_KEY);
  int error = map_both(g, device, image);
  if (!error) error = carrier->open(g);
  if (!error) error = claim_unless_lost(g);
  if (!error) error = cp_groups_enlist(g);
  if (!error) return g;
  release(g);
  errno = error;
  return NULL;
}

CP_EXPORT void cp_groups_close(struct cp_groups *g) {
  cp_groups_stop(g);
  cp_groups_delist(g);
  release(g);
}
