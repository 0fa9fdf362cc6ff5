/* What comes through the job channel on a CUDA device: extents, cuts, lanes and weights, in any order, with numbers and
 * sizes of any kind, and a driver that may refuse.  The driver here knows what is reserved and mapped: nothing is mapped
 * twice, beside a reservation, or unmapped that is not there. */
#include "fuzz/fuzz.h"
#include "tests/check.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "cuda/memory/grant.h"

static jmp_buf given_up; /* the input is over */
static _Noreturn void give_up(void) { longjmp(given_up, 1); }

#undef SYS_nanosleep
#define SYS_nanosleep SYS_getppid
#undef SYS_ppoll /* nobody waits */
#define SYS_ppoll SYS_getppid
#define abort() give_up()
#include "base/channel.c"
#undef abort
#include "base/section.c"
#include "cuda/memory/extents.c"
#undef MOST_EXTENTS
#define find find_weights
#define reserve reserve_weights
#define lock weights_lock
#define count weights_count
#define map map_weights
#define unmap unmap_weights
#include "cuda/memory/weights.c"
#undef lock
#undef count

struct cp_process cp;
uint64_t cp_syscalls;
struct cp_real cp_real;
uint32_t cp_driver_ready;
__thread bool cp_is_helper;
CUstreamCaptureMode cp_relax(void) { return CU_STREAM_CAPTURE_MODE_RELAXED; }
void cp_unrelax(CUstreamCaptureMode mode) { (void)mode; }
bool cp_channel_is_there(void) { return true; }
bool cp_until(bool (*ask)(void), uint64_t begin, uint64_t limit) { return (void)begin, (void)limit, ask(); }
uint64_t cp_segments_extent(uint32_t class_) { return ranges[class_].mapped / 2; }
void cp_notify(struct cp_seat *of) { cp_add(&of->bell, 1); }
void cp_send(uint32_t type, uint64_t a, uint64_t b, uint64_t c, uint64_t d) {
  (void)a, (void)b, (void)c, (void)d;
  CHECK_THAT(type == CP_CUT_DONE);
}

/* ---- the driver ------------------------------------------------------------------------------------------------------ */

#define MOST_SPANS 4096
struct span {
  uint64_t at, bytes;
};
static struct span reserved[MOST_SPANS], mapped[MOST_SPANS];
static uint32_t handles;
static uint64_t next_address;
static bool refuses; /* calls that may fail do */

static struct span *find_span(struct span *spans, uint64_t at, uint64_t bytes) {
  for (uint32_t i = 0; i < MOST_SPANS; i++)
    if (spans[i].bytes == bytes && spans[i].at == at) return &spans[i];
  return NULL;
}

static bool overlaps(uint64_t at, uint64_t bytes) {
  for (uint32_t i = 0; i < MOST_SPANS; i++)
    if (mapped[i].bytes && mapped[i].at < at + bytes && at < mapped[i].at + mapped[i].bytes) return true;
  return false;
}

static bool is_reserved(uint64_t at, uint64_t bytes) {
  for (uint32_t i = 0; i < MOST_SPANS; i++)
    if (reserved[i].bytes >= bytes && at >= reserved[i].at && at - reserved[i].at <= reserved[i].bytes - bytes) return true;
  return false;
}

static CUresult reserve_address(CUdeviceptr *at, size_t bytes, size_t alignment, CUdeviceptr hint,
                                unsigned long long flags) {
  (void)alignment, (void)hint, (void)flags;
  struct span *free_one = find_span(reserved, 0, 0);
  if (refuses || !bytes || bytes % CP_PIECE || bytes > 1ull << 40 || !free_one) return CUDA_ERROR_INVALID_VALUE;
  *free_one = (struct span){next_address, bytes};
  *at = next_address;
  next_address += bytes + CP_PIECE;
  return CUDA_SUCCESS;
}

static CUresult free_address(CUdeviceptr at, size_t bytes) {
  struct span *s = find_span(reserved, at, bytes);
  CHECK_THAT(s && !overlaps(at, bytes));
  *s = (struct span){0};
  return CUDA_SUCCESS;
}

static CUresult import(CUmemGenericAllocationHandle *handle, void *shared, CUmemAllocationHandleType type) {
  (void)type;
  int fd = (int)(intptr_t)shared;
  CHECK_THAT(fcntl(fd, F_GETFD) >= 0);
  if (refuses) return CUDA_ERROR_INVALID_VALUE;
  *handle = ++handles;
  return CUDA_SUCCESS;
}

static CUresult map_memory(CUdeviceptr at, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                           unsigned long long flags) {
  (void)offset, (void)handle, (void)flags;
  CHECK_THAT(is_reserved(at, bytes) && !overlaps(at, bytes));
  if (bytes % CP_PIECE || at % CP_PIECE) return CUDA_ERROR_INVALID_VALUE;
  struct span *free_one = find_span(mapped, 0, 0);
  CHECK_THAT(free_one);
  *free_one = (struct span){at, bytes};
  return CUDA_SUCCESS;
}

static CUresult unmap_memory(CUdeviceptr at, size_t bytes) {
  struct span *s = find_span(mapped, at, bytes);
  CHECK_THAT(s);
  *s = (struct span){0};
  return CUDA_SUCCESS;
}

static CUresult release(CUmemGenericAllocationHandle handle) { return (void)handle, handles--, CUDA_SUCCESS; }

static CUresult access_memory(CUdeviceptr at, size_t bytes, const CUmemAccessDesc *access, size_t count) {
  uint64_t covered = 0;
  (void)access, (void)count;
  for (uint32_t i = 0; i < MOST_SPANS; i++)
    if (mapped[i].bytes && mapped[i].at >= at && mapped[i].at + mapped[i].bytes <= at + bytes) covered += mapped[i].bytes;
  CHECK_THAT(covered == bytes);
  return refuses ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

static void start_driver(void) {
  memset(reserved, 0, sizeof reserved);
  memset(mapped, 0, sizeof mapped);
  next_address = 1ull << 44;
  refuses = false;
  cp_real.cuMemAddressReserve = reserve_address;
  cp_real.cuMemAddressFree = free_address;
  cp_real.cuMemImportFromShareableHandle = import;
  cp_real.cuMemMap = map_memory;
  cp_real.cuMemUnmap = unmap_memory;
  cp_real.cuMemRelease = release;
  cp_real.cuMemSetAccess = access_memory;
}

/* ---- the daemon ------------------------------------------------------------------------------------------------------ */

static int daemon_fd;
static struct cp_seat seat;

static void send_one(const struct cp_packet *p, size_t size, bool with_file) {
  union {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(sizeof(int))];
  } control = {.align = {.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS}};
  struct iovec v = {.iov_base = (void *)(uintptr_t)p, .iov_len = size};
  struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};
  memcpy(CMSG_DATA(&control.align), &daemon_fd, sizeof daemon_fd); /* any file will do */
  if (with_file) m.msg_control = &control, m.msg_controllen = sizeof control;
  sendmsg(daemon_fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static uint64_t some_bytes(struct input *in) {
  uint32_t kind = draw_below(in, 8);
  return kind < 5 ? kind * CP_PIECE : kind == 5 ? draw(in, 8) : kind == 6 ? CP_GIB : draw(in, 1);
}

static void send_some(struct input *in) {
  static const uint32_t types[] = {CP_EXTENT, CP_EXTENT, CP_EXTENT, CP_CUT, CP_LANE, CP_BANK, CP_WEIGHTS, CP_WEIGHTS};
  uint32_t type = draw_below(in, 9), size = draw_below(in, 16);
  struct cp_packet p = {.type = type < 8 ? types[type] : (uint32_t)draw(in, 4), .a = draw_below(in, 4)};
  p.b = p.type == CP_WEIGHTS ? some_bytes(in) : draw_below(in, 4);
  p.c = p.type == CP_EXTENT && draw_below(in, 4) && p.b < 2 ? ranges[p.b].end : some_bytes(in) % (1 + CP_GIB);
  p.d = p.type == CP_EXTENT ? some_bytes(in) : draw_below(in, 4);
  if (p.type == CP_WEIGHTS) p.c = draw_below(in, 3);
  send_one(&p, size == 1 ? 1 + draw(in, 1) % sizeof p : sizeof p, draw_below(in, 8) != 0);
}

static void one_step(struct input *in) {
  int header = -1;
  switch (draw_below(in, 12)) {
  case 0: cp_store(&seat.lane, draw_below(in, 4)); break;
  case 1: cp_store(&seat.bank, draw_below(in, 4)); break;
  case 2: cp_extents_take(false); break;
  case 3: /* the turn ends */
    cp_extents_let_go();
    cp_extents_close();
    break;
  case 4: cp_extents_hold(); break;
  case 5: refuses = draw_below(in, 2); break;
  case 6: cp_extents_base(draw_below(in, 2)); break;
  case 7:
    if (!cp_weights_take(draw_below(in, 4), &header)) cp_close_fd(&header);
    break;
  default: send_some(in);
  }
  CHECK_THAT(!lock.word && !weights_lock.word && !cp_section.depth && !handles);
}

static void attach(void) {
  int pair[2];
  CHECK_THAT(!socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair));
  start_driver();
  seat = (struct cp_seat){0};
  cp.seat = &seat;
  cp.fd = pair[0];
  cp.lane = cp.buffer = 0;
  daemon_fd = pair[1];
  cp_driver_ready = 1;
  cp_extents_attach(CP_GIB);
}

/* All descriptors of a process that has ended are closed. */
static void forget_all(void) {
  cp_reset_lock(&lock);
  cp_section = (struct cp_section){0};
  cp_extents_fork();
  cp_extents_forked(true);
  memset(ranges, 0, sizeof ranges);
  memset(table, 0, sizeof table);
  barred = stopped = false;
  handles = 0;
  close(cp.fd);
  close(daemon_fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static struct input in;
  in = (struct input){data, size};
  attach();
  if (!setjmp(given_up))
    while (!input_ends(&in)) one_step(&in);
  forget_all();
  return 0;
}
