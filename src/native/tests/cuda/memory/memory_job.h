/* A job that has memory by grant, and the daemon's part of that: extents, limits, answers. */
#include "tests/cuda/job.h"

#include "cuda/memory/grant.h"

#include <dirent.h>

#define PIECE (4 * CP_MIB)
#define BANK 0u
#define LANE 1u

/* ---- the daemon's part ------------------------------------------------------------------------------------------------- */

/* A piece of device memory as the device agent makes it. */
static inline int make_memory(size_t size) {
  CUmemGenericAllocationHandle handle;
  CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                              .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                              .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
  int fd;
  OK(cp_real.cuMemCreate(&handle, size, &prop, 0));
  OK(cp_real.cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  OK(cp_real.cuMemRelease(handle));
  return fd;
}

static inline void send_extent(uint32_t class_, uint64_t number, uint64_t offset, uint64_t size, int fd) {
  send_packet(daemon_fd, (struct cp_packet){.type = CP_EXTENT, .a = number, .b = class_, .c = offset, .d = size}, fd);
}

/* A new extent of the job's device buffer or lane; returns the daemon's descriptor. */
static inline int add_memory(uint32_t class_, uint64_t offset, uint64_t size) {
  int fd = make_memory(size);
  send_extent(class_, class_ ? cp.lane : cp.buffer, offset, size, fd);
  return fd;
}

static inline void set_limit(uint32_t class_, uint64_t bytes) {
  cp_store(class_ ? &seat_of(0)->e_limit : &seat_of(0)->p_limit, bytes);
}

static inline void answer(const struct cp_packet *grow, uint32_t status) {
  struct cp_seat *s = seat_of(0);
  cp_store(&s->grow_status, status);
  cp_store(&s->grow_ack, (uint32_t)grow->c);
  cp_futex_wake(&s->grow_ack);
}

static inline void cut_to(uint32_t class_, uint64_t number, uint64_t end) {
  send_packet(daemon_fd, (struct cp_packet){.type = CP_CUT, .a = number, .b = class_, .c = end}, -1);
  cp_notify(seat_of(0));
  struct cp_packet p = packet(CP_CUT_DONE);
  CHECK_THAT(p.a == number && p.b == class_ && p.c == end);
}

/* Grants what is asked for, in pieces, up to a most; what is more is denied. */
static struct {
  uint64_t end[2], most[2];
  uint32_t optional, waiting, denied;
} granting;

static inline void *grant(void *unused) {
  struct cp_packet p;
  while (recv(daemon_fd, &p, sizeof p, 0) == sizeof p) {
    if (p.type != CP_GROW) continue;
    p.d & 1 ? cp_add(&granting.optional, 1) : cp_add(&granting.waiting, 1);
    bool fits = p.b <= granting.most[p.a];
    for (; fits && granting.end[p.a] < p.b; granting.end[p.a] += PIECE)
      close(add_memory((uint32_t)p.a, granting.end[p.a], PIECE));
    if (fits) set_limit((uint32_t)p.a, granting.end[p.a]);
    if (!fits) cp_add(&granting.denied, 1);
    answer(&p, fits ? CP_GROW_GRANTED : CP_GROW_DENIED);
  }
  return unused;
}

/* The process has its job channel and a turn; `most` bytes of each class will be granted. */
static inline void begin_granted(uint64_t persistent, uint64_t ephemeral) {
  whole = 0;
  begin();
  granting.most[BANK] = persistent;
  granting.most[LANE] = ephemeral;
}

/* ---- the job's part ---------------------------------------------------------------------------------------------------- */

void cp_begin_iterations(void);
void cp_pool_scope(int delta);
void cp_live_blocks(const uint64_t *addresses, const uint64_t *bytes, uint64_t count);

/* As PyTorch's allocator asks. */
static inline CUdeviceptr segment(size_t bytes) {
  CUdeviceptr at;
  OK(cp_segment_alloc(&at, bytes, true));
  return at;
}

static inline void fill(CUdeviceptr at, size_t bytes, uint64_t seed) {
  uint64_t *word = (uint64_t *)(uintptr_t)at;
  for (size_t i = 0; i < bytes / 8; i++) word[i] = (seed + i) * 0x9e3779b97f4a7c15u;
}
static inline bool holds(CUdeviceptr at, size_t bytes, uint64_t seed) {
  const uint64_t *word = (const uint64_t *)(uintptr_t)at;
  for (size_t i = 0; i < bytes / 8; i++)
    if (word[i] != (seed + i) * 0x9e3779b97f4a7c15u) return false;
  return true;
}

static inline uint32_t descriptors(void) {
  DIR *d = opendir("/proc/self/fd");
  uint32_t n = 0;
  while (readdir(d)) n++;
  closedir(d);
  return n;
}
