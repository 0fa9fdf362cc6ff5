/* Extents: pieces of device memory that the daemon sends, mapped at the job's two ranges one after another.
 *
 * A process attaches before it uses the driver, and to initialise the driver is the program's business: until then the
 * descriptors wait.  Mapped or not, they are cut alike.
 *
 * The driver unmaps without waiting for kernels, and a kernel that comes to what is gone breaks its context.  So what
 * work of the present turn may use does not go: a packet that asks for it stays in the channel, and all behind it, until
 * the turn has been drained.  Daemons ask for no such thing. */
#include "cuda/memory/grant.h"
#include "cuda/memory/weights.h"

#include <poll.h>

#define MOST_EXTENTS 1024
#define LOOK_US 20000

struct extent {
  uint64_t size;
  int fd; /* until it is mapped */
};

struct range {
  CUdeviceptr base;
  uint64_t end, mapped;      /* bytes, without gaps */
  uint32_t count, mapped_count;
  struct extent extent[MOST_EXTENTS];
};

static struct cp_lock lock; /* for the ranges, and for reading the channel */
static struct range ranges[2];
static size_t window;
static bool barred;  /* for debugging: nothing of it may be used */
static bool held;    /* by the present turn: */
static uint64_t held_weights; /* and these weights, 0: none */
static bool postponed; /* a packet, until the turn has ended */
static bool stopped; /* the helper thread makes no calls of the driver any more */

void cp_extents_attach(size_t window_) {
  window = window_;
  barred = cp_load(&cp.seat->close_lane);
}

static bool halted(void) { return stopped && cp_is_helper; }

/* Lock held. */
static bool reserve(void) {
  CUdeviceptr at;
  if (ranges[0].base) return true;
  if (halted() || !cp_load(&cp_driver_ready)) return false;
  if (cp_real.cuMemAddressReserve(&at, 2 * window, CP_PIECE, 0, 0) != CUDA_SUCCESS) return false;
  cp_store(&ranges[0].base, at);
  cp_store(&ranges[1].base, at + window);
  return true;
}

CUdeviceptr cp_extents_base(uint32_t class_) {
  CUdeviceptr base = cp_load(&ranges[class_].base);
  if (CP_LIKELY(base)) return base;
  cp_acquire(&lock);
  reserve();
  cp_release(&lock);
  return cp_load(&ranges[class_].base);
}

uint64_t cp_extents_mapped(uint32_t class_) { return cp_load(&ranges[class_].mapped); }

/* ---- mapping, lock held ------------------------------------------------------------------------------------------------ */

static bool set_access(CUdeviceptr address, uint64_t bytes, CUmemAccess_flags flags) {
  CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, flags};
  return !bytes || cp_real.cuMemSetAccess(address, bytes, &access, 1) == CUDA_SUCCESS;
}

bool cp_extent_map(CUdeviceptr address, uint64_t bytes, int fd, bool open) {
  CUmemGenericAllocationHandle handle;
  void *shared = (void *)(uintptr_t)fd;
  if (cp_real.cuMemImportFromShareableHandle(&handle, shared, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) != CUDA_SUCCESS)
    return false;
  bool mapped = cp_real.cuMemMap(address, bytes, 0, handle, 0) == CUDA_SUCCESS;
  if (mapped && open && !set_access(address, bytes, CU_MEM_ACCESS_FLAGS_PROT_READWRITE)) {
    cp_real.cuMemUnmap(address, bytes);
    mapped = false;
  }
  cp_real.cuMemRelease(handle); /* the mapping keeps the memory */
  return mapped;
}

/* What cannot be mapped is tried again the next time. */
static void map_waiting(struct range *r) {
  if (r->mapped_count == r->count || !reserve()) return;
  CUstreamCaptureMode mode = cp_relax();
  while (r->mapped_count < r->count) {
    struct extent *e = &r->extent[r->mapped_count];
    if (!cp_extent_map(r->base + r->mapped, e->size, e->fd, !barred)) break;
    cp_close_fd(&e->fd);
    cp_store(&r->mapped, r->mapped + e->size);
    r->mapped_count++;
  }
  cp_unrelax(mode);
}

static void cut(struct range *r, uint64_t to) {
  while (r->end > to) {
    struct extent *e = &r->extent[--r->count];
    r->end -= e->size;
    cp_close_fd(&e->fd);
    if (r->mapped_count <= r->count) continue;
    cp_store(&r->mapped, r->end);
    r->mapped_count = r->count;
    CUstreamCaptureMode mode = cp_relax();
    cp_real.cuMemUnmap(r->base + r->end, e->size);
    cp_unrelax(mode);
  }
}

/* ---- access, between turns --------------------------------------------------------------------------------------------- */

static bool set_all(CUmemAccess_flags flags) {
  CUstreamCaptureMode mode = cp_relax();
  bool done = true;
  for (uint32_t i = 0; i < 2; i++) done &= set_access(ranges[i].base, ranges[i].mapped, flags);
  cp_unrelax(mode);
  return done;
}

static void warn(void) {
  static const char text[] = "carpool: the memory of this job could not be closed between its turns (debugging)\n";
  static bool warned;
  if (!warned) syscall(SYS_write, STDERR_FILENO, text, sizeof text - 1);
  warned = true;
}

void cp_extents_close(void) {
  cp_acquire(&lock);
  bool done = halted() || set_all(CU_MEM_ACCESS_FLAGS_PROT_NONE);
  barred = true; /* also where only a part of it is */
  cp_release(&lock);
  if (!done) warn();
}

static bool covers(uint32_t class_) { return ranges[class_].mapped >= cp_segments_extent(class_); }

bool cp_extents_hold(void) {
  cp_acquire(&lock);
  if (barred && set_all(CU_MEM_ACCESS_FLAGS_PROT_READWRITE)) barred = false;
  held = !barred && covers(0) && covers(1);
  held_weights = cp_load(&cp.seat->weights);
  bool holds = held;
  cp_release(&lock);
  return holds;
}

void cp_extents_let_go(void) {
  cp_acquire(&lock);
  held = false;
  bool again = postponed;
  cp_release(&lock);
  if (again) cp_notify(cp.seat);
}

/* ---- packets, lock held ------------------------------------------------------------------------------------------------ */

static uint64_t *number_of(uint64_t class_) { return class_ ? &cp.lane : &cp.buffer; }

static void add_extent(struct cp_packet *p, int fd) {
  struct range *r = &ranges[p->b];
  bool next = p->a == *number_of(p->b) && p->c == r->end && p->d && p->d <= window - r->end;
  if (next && r->count == MOST_EXTENTS) cp_give_up("it consists of too many extents");
  if (next && fd < 0) fd = cp_insist(p, NULL);
  if (!next) {
    cp_close_fd(&fd);
    return;
  }
  r->extent[r->count++] = (struct extent){p->d, fd};
  r->end += p->d;
  map_waiting(r);
}

static void move(uint32_t class_, uint64_t number) {
  cut(&ranges[class_], 0);
  cp_store(number_of(class_), number);
}

static void cut_back(const struct cp_packet *p) {
  if (p->a == *number_of(p->b)) cut(&ranges[p->b], p->c);
  cp_send(CP_CUT_DONE, p->a, p->b, p->c, 0);
}

static bool needed(uint64_t class_, uint64_t from) {
  const struct range *r = &ranges[class_];
  return held && r->mapped > from && cp_segments_extent((uint32_t)class_) > from;
}

/* Would it take away what work of the present turn may use? */
static bool too_early(const struct cp_packet *p) {
  if (p->type == CP_LANE) return needed(1, 0);
  if (p->type == CP_BANK) return needed(0, 0);
  if (p->type == CP_CUT && p->b < 2) return p->a == *number_of(p->b) && needed(p->b, p->c);
  return held && p->a == held_weights && cp_weights_go(p);
}

static void handle(struct cp_packet *p, int fd) {
  if (p->type == CP_EXTENT && p->b < 2) {
    add_extent(p, fd);
    return;
  }
  if (p->type == CP_WEIGHTS) {
    cp_weights_came(p, fd < 0 ? cp_insist(p, NULL) : fd);
    return;
  }
  cp_close_fd(&fd);
  if (p->type == CP_CUT && p->b == CP_CUT_WEIGHTS) {
    cp_weights_cut(p->a);
    cp_send(CP_CUT_DONE, p->a, p->b, 0, 0);
  }
  if (p->type == CP_CUT && p->b < CP_CUT_WEIGHTS) cut_back(p);
  if (p->type == CP_LANE) move(1, p->a);
  if (p->type == CP_BANK) move(0, p->a);
}

/* ---- the channel ------------------------------------------------------------------------------------------------------- */

static void drain(void) {
  struct cp_packet p;
  int fd;
  cp_acquire(&lock);
  postponed = false;
  while (!halted() && !postponed && cp_peek(&p, &fd, false)) {
    postponed = too_early(&p);
    if (postponed) {
      cp_close_fd(&fd);
      continue;
    }
    handle(&p, fd);
    cp_skip_packet();
  }
  for (uint32_t i = 0; i < 2 && !halted(); i++) map_waiting(&ranges[i]);
  cp_release(&lock);
}

static bool behind(void) {
  return cp_load(&cp.seat->lane) != cp_load(&cp.lane) || cp_load(&cp.seat->bank) != cp_load(&cp.buffer);
}

/* Returns true if none will come any more.  The helper thread may be faster than us, so nobody waits for ever. */
static bool await_packet(void) {
  struct pollfd p = {.fd = cp.fd, .events = POLLIN};
  cp_add(&cp_syscalls, 1);
  syscall(SYS_ppoll, &p, 1, &(struct timespec){.tv_nsec = LOOK_US * 1000}, NULL, 0);
  return p.revents & (POLLHUP | POLLERR | POLLNVAL);
}

void cp_extents_take(bool wait) {
  drain();
  while (wait && behind()) {
    bool closed = await_packet();
    drain();
    if (closed && behind()) cp_give_up("the job channel is closed");
  }
}

/* The helper thread must not be found in one of the driver's calls then. */
void cp_extents_stop(void) {
  cp_acquire(&lock);
  stopped = true;
  cp_release(&lock);
}

void cp_extents_fork(void) { cp_acquire(&lock); }

static void forget(struct range *r) {
  for (uint32_t n = r->mapped_count; n < r->count; n++) cp_close_fd(&r->extent[n].fd);
  r->count = r->mapped_count;
  r->end = r->mapped;
}

/* A child has no seat, and must not keep memory that its parent gives back. */
void cp_extents_forked(bool child) {
  for (uint32_t i = 0; i < 2 && child; i++) forget(&ranges[i]);
  if (child) cp_weights_forked();
  cp_release(&lock);
}
