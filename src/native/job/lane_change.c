/* The descriptors of a job on the host device: those that come with its seat, and those of a new lane or device
 * buffer, which wait in the job channel when the job has been moved. */
#include "base/process.h"

#include "weights/groups.h"

#include <fcntl.h>

/* SETUP brings the seat table, the lane, the device buffer and the store. */
int cp_host_attach(const struct cp_packet *setup, const int *files, int count) {
  struct cp_host *store = &cp.arenas.host;
  const char *failure = NULL;
  cp.buffer_new = true;
  cp.capacity = setup->d;
  if (!cp.text_count)
    failure = "libc10.so is not loaded: import torch first";
  else if (cp_arenas_init(&cp.arenas, setup->b, files[2], files[1]))
    failure = "no address space for the arenas (ulimit -v?)";
  else if (!cp_has_bytes(files[2], CP_WINDOWS * setup->b))
    failure = "the device buffer is smaller than the arenas";
  else if (cp_host_init(store, CP_WINDOWS * setup->b, files[3]) || cp_order_init(&cp.order, store->chunks))
    failure = "the host store could not be mapped";
  if (!failure) return 0;
  cp_failure = failure;
  for (int i = 1; i < count; i++) close(files[i]);
  return -1;
}

static int *mapped_fd(const struct cp_packet *p) {
  return p->type == CP_LANE ? &cp.arenas.lane_fd : p->type == CP_BANK ? &cp.arenas.device_fd : NULL;
}

/* A process may have as many descriptors as it is allowed to: then the old file's is closed first. */
static void take_file(struct cp_packet *p, int fd) {
  struct cp_arenas *a = &cp.arenas;
  if (fd < 0) fd = cp_insist(p, mapped_fd(p));
  cp_close_fd(mapped_fd(p));
  bool failed = p->type == CP_LANE ? cp_arenas_set_lane(a, fd) : cp_arenas_set_buffer(a, fd);
  if (failed) cp_give_up("it cannot be mapped (vm.max_map_count, ulimit -v?)");
  *(p->type == CP_LANE ? &cp.lane : &cp.buffer) = p->a;
  cp.buffer_new |= p->type == CP_BANK;
}

/* ---- weights' memory ------------------------------------------------------------------------------------------------- */

#define MOST_WEIGHTS 4096

/* What has come, and has not been taken back.  Gate lock held. */
static struct weights {
  uint64_t key;
  int fd;
  bool fresh; /* nobody has asked for it yet */
} weights[MOST_WEIGHTS];
static uint32_t weights_count;

static struct weights *find_weights(uint64_t key) {
  for (uint32_t i = 0; i < weights_count; i++)
    if (weights[i].key == key) return &weights[i];
  return NULL;
}

static void take_weights(struct cp_packet *p, int fd) {
  struct weights *w = find_weights(p->a);
  if (fd < 0) fd = cp_insist(p, w ? &w->fd : NULL);
  if (!w && weights_count == MOST_WEIGHTS) cp_give_up("too many models are on the device");
  if (!w) {
    w = &weights[weights_count];
    w->fd = -1;
    cp_add(&weights_count, 1);
  }
  cp_close_fd(&w->fd);
  *w = (struct weights){p->a, fd, true};
}

/* They have been dropped; their memory is, or will be, that of others. */
static void cut_weights(const struct cp_packet *p) {
  struct weights *w = p->b == CP_CUT_WEIGHTS ? find_weights(p->a) : NULL;
  if (!w) return;
  cp_close_fd(&w->fd);
  cp_add(&weights_count, -1);
  *w = weights[weights_count];
  cp_groups_dropped(p->a);
}

/* ---- packets --------------------------------------------------------------------------------------------------------- */

static bool is_of_weights(const struct cp_packet *p) { return p->type == CP_WEIGHTS || p->type == CP_CUT; }

/* only_weights: where the next packet is another one, it stays. */
static bool take_next(bool wait, bool only_weights) {
  struct cp_packet p;
  int fd;
  if (!cp_peek(&p, &fd, wait)) return false;
  if (only_weights && !is_of_weights(&p)) {
    cp_close_fd(&fd);
    return false;
  }
  if (mapped_fd(&p))
    take_file(&p, fd);
  else if (p.type == CP_WEIGHTS)
    take_weights(&p, fd);
  else {
    if (p.type == CP_CUT) cut_weights(&p);
    cp_close_fd(&fd);
  }
  cp_skip_packet();
  return true;
}

void cp_take_files(void) {
  while (cp_load(&cp.seat->lane) != cp.lane || cp_load(&cp.seat->bank) != cp.buffer) take_next(true, false);
}

/* Gate lock held.  Lanes and device buffers come only while the gate is closed. */
static void take_news(void) {
  while (take_next(false, cp.gate != CP_CLOSED)) {}
}

/* The caller's to close.  -1 and errno. */
static int duplicate(int fd) { return (int)syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, 0); }

int cp_take_weights(uint64_t key, int *file) {
  cp_acquire(&cp.gate_lock);
  take_news();
  struct weights *w = find_weights(key);
  bool fresh = w && w->fresh;
  *file = fresh ? duplicate(w->fd) : -1;
  int error = fresh && *file < 0 ? errno : 0;
  if (*file >= 0) w->fresh = false;
  cp_release(&cp.gate_lock);
  return error;
}

void cp_weights_news(void) {
  if (cp_load(&weights_count)) {
    cp_acquire(&cp.gate_lock);
    take_news();
    cp_release(&cp.gate_lock);
  }
  if (!cp_load(&cp.seat->weights)) cp_groups_clear(); /* who computes, or is about to, would wait for that */
}

void cp_weights_again(uint64_t key) {
  cp_acquire(&cp.gate_lock);
  take_news();
  const struct weights *w = find_weights(key);
  int file = w ? duplicate(w->fd) : -1;
  cp_release(&cp.gate_lock);
  if (w && (file < 0 || !cp_groups_moved(key, file))) cp_give_up("the weights' memory cannot be mapped");
  cp_close_fd(&file);
}
