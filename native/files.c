/* The job has been moved: its new lane or bank waits in the job channel. */
#include "process.h"

static int *mapped_fd(const struct cp_packet *p) {
  return p->type == CP_LANE ? &cp.arenas.lane_fd : p->type == CP_BANK ? &cp.arenas.device_fd : NULL;
}

/* A process may have as many descriptors as it is allowed to: then the old file's is closed first. */
static void take_file(struct cp_packet *p, int fd) {
  struct cp_arenas *a = &cp.arenas;
  if (fd < 0) fd = cp_insist(p, mapped_fd(p));
  cp_close_fd(mapped_fd(p));
  if (p->type == CP_LANE ? cp_arenas_set_lane(a, fd) : cp_arenas_set_bank(a, fd)) cp_give_up("it cannot be mapped");
  *(p->type == CP_LANE ? &cp.lane : &cp.bank) = p->a;
  cp.bank_new |= p->type == CP_BANK;
}

/* The latest weights' memory that has come and nobody has asked for. */
static struct {
  uint64_t key;
  int fd;
} weights = {.fd = -1};

static void take_weights(struct cp_packet *p, int fd) {
  if (fd < 0) fd = cp_insist(p, NULL);
  cp_close_fd(&weights.fd);
  weights.key = p->a;
  weights.fd = fd;
}

static bool take_next(bool wait) {
  struct cp_packet p;
  int fd;
  if (!cp_peek(&p, &fd, wait)) return false;
  if (mapped_fd(&p))
    take_file(&p, fd);
  else if (p.type == CP_WEIGHTS)
    take_weights(&p, fd);
  else
    cp_close_fd(&fd);
  cp_skip_packet();
  return true;
}

void cp_take_files(void) {
  while (cp_load(&cp.seat->lane) != cp.lane || cp_load(&cp.seat->bank) != cp.bank) take_next(true);
}

int cp_take_weights(uint64_t key, int *file) {
  cp_acquire(&cp.gate_lock); /* closed: the job has no turn */
  while (take_next(false)) {}
  *file = weights.key == key ? weights.fd : -1;
  if (*file >= 0) weights.fd = -1;
  cp_release(&cp.gate_lock);
  return 0;
}
