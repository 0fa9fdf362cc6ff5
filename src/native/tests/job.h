/* One job and a stand-in for the daemon in one process.  The job has one block, whose content is known. */
#include "tests/check.h"
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "tests/library.h"
#include "tests/packet.h"

#define CHUNKS 24
static int daemon_fd, buffer, store;
static uint32_t leave_at_once; /* the seat's word when the helper thread starts */
static bool no_helper;
static uint64_t *block;

static void on_fault(int sig, siginfo_t *info, void *context) {
  (void)sig, (void)context;
  if (!cp_arenas_hold(&cp.arenas, info->si_addr)) abort();
  cp_trap(info->si_addr);
}

static void attach(void) {
  int pair[2], lane = memfd_create("lane", 0);
  off_t span = CP_WINDOWS * (off_t)CP_GIB;
  buffer = memfd_create("bank", 0);
  store = memfd_create("store", 0);
  CHECK_THAT(!socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair));
  CHECK_THAT(!ftruncate(lane, CP_GIB) && !ftruncate(buffer, span) && !ftruncate(store, span + span / CP_CHUNK));
  cp.seat_table = mmap(NULL, CP_BOARD_HEADER + 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  cp.seat = (struct cp_seat *)(cp.seat_table + CP_BOARD_HEADER);
  cp.seat->grace_us = 60000000; /* however long a thread has to wait for a processor */
  cp.seat->leave = leave_at_once;
  cp.fd = pair[0];
  daemon_fd = pair[1];
  struct timeval patience = {20, 0};
  CHECK_THAT(!setsockopt(daemon_fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience));
  cp_boundary_init(&cp.boundary);
  CHECK_THAT(!cp_arenas_init(&cp.arenas, CP_GIB, buffer, lane));
  cp.arenas.parking &= parking;
  CHECK_THAT(!cp_host_init(&cp.arenas.host, (size_t)span, store));
  CHECK_THAT(!cp_order_init(&cp.order, cp.arenas.host.chunks));
  struct sigaction a = {.sa_flags = SA_SIGINFO | SA_NODEFER};
  a.sa_sigaction = on_fault;
  CHECK_THAT(!sigaction(SIGSEGV, &a, NULL) && (no_helper || !cp_helper_start()));
  cp_store(&cp.attached, 1);
}

static void wait_for(uint32_t type) {
  struct cp_packet p;
  do CHECK_THAT(recv(daemon_fd, &p, sizeof p, 0) == sizeof p);
  while (p.type != type);
  CHECK_THAT(type != CP_OFFLOADED || (p.a == 0 && p.b == cp.seat->stored));
}

static void pause_us(uint64_t us) {
  struct timespec t = {(time_t)(us / 1000000), (long)(us % 1000000) * 1000};
  nanosleep(&t, NULL);
}

static void give(void) {
  cp_store(&cp.seat->turn_start_us, cp_now_us());
  cp_store(&cp.seat->turn, 1);
}

static void ask_out(void) {
  cp_store(&cp.seat->offload, CP_OFFLOAD_ASKED);
  cp_notify(cp.seat);
}

static void answered(size_t chunks) {
  wait_for(CP_OFFLOADED);
  CHECK_THAT(cp.seat->offload == CP_OFFLOAD_DONE && cp.seat->offloaded == 1);
  CHECK_THAT(cp.seat->stored == chunks * CP_CHUNK && cp_host_next(&cp.arenas.host, 0) < cp.arenas.host.chunks);
  cp_store(&cp.seat->offload, CP_OFFLOAD_NO);
}

static void spoil_buffer(size_t chunks) {
  static char garbage[CP_CHUNK];
  memset(garbage, (int)next_random(), sizeof garbage);
  for (size_t i = 0; i < chunks; i++)
    CHECK_THAT(pwrite(buffer, garbage, CP_CHUNK, (off_t)(i * CP_CHUNK)) == (ssize_t)CP_CHUNK);
}

/* The turn ends, everything moves out, and another job uses the device buffer. */
static inline void leave(void) {
  cp_turn_end(CP_BY_BOUNDARY);
  ask_out();
  answered(CHUNKS);
  CHECK_THAT(cp.seat->store_bytes >= cp.seat->stored);
  spoil_buffer(CHUNKS);
}

static void use(size_t chunk) {
  uint64_t *p = block + chunk * CP_CHUNK / 8;
  for (size_t i = 0; i < CP_CHUNK / 8; i += 8) CHECK_THAT(p[i] == chunk * 1000003 + i);
}

static inline void all_back(void) {
  for (uint64_t end = cp_now_us() + 20000000; cp_load(&cp.seat->stored);) {
    CHECK_THAT(cp_now_us() < end);
    pause_us(200);
  }
}

static inline void use_all(void) {
  for (size_t i = 0; i < CHUNKS; i++) use(i);
}

/* The block with its content, and a turn. */
static void begin(void) {
  size_t need;
  both_modes();
  attach();
  block = cp_pool_alloc(&cp.arenas.win[0].pool, CHUNKS * CP_CHUNK, CP_GIB, 0, &need);
  give();
  for (size_t c = 0; c < CHUNKS; c++)
    for (size_t i = 0; i < CP_CHUNK / 8; i += 8) block[c * CP_CHUNK / 8 + i] = c * 1000003 + i;
}
