/* Live ephemeral content survives the time without the turn, whatever others do with the lane meanwhile. */
#include "tests/cuda/memory/memory_job.h"

#define MEMORY (32 * CP_MIB) /* of the lane and of the device buffer */

unsigned long stub_pinned_bytes(void);

static CUdeviceptr others[2]; /* the same memory, as others see it */

static CUdeviceptr see(int fd) {
  CUdeviceptr at;
  CUmemGenericAllocationHandle handle;
  CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  OK(cuMemAddressReserve(&at, MEMORY, 0, 0, 0));
  void *shared = (void *)(uintptr_t)fd;
  OK(cuMemImportFromShareableHandle(&handle, shared, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  OK(cp_real.cuMemMap(at, MEMORY, 0, handle, 0));
  OK(cuMemSetAccess(at, MEMORY, &access, 1));
  close(fd);
  return at;
}

static void spoil(uint32_t class_) { memset((void *)(uintptr_t)others[class_], (int)next_random(), MEMORY); }

/* A job in its iterations, with a turn, `persistent` bytes granted, and 2 MiB of them in use. */
static CUdeviceptr begin_with(uint64_t persistent) {
  begin_granted(0, 0);
  seat_of(0)->grace_us = 30000000; /* however slow the machine is, turns end where the test says */
  others[LANE] = see(add_memory(LANE, 0, MEMORY));
  others[BANK] = see(add_memory(BANK, 0, MEMORY));
  set_limit(LANE, MEMORY);
  set_limit(BANK, persistent);
  cp.e_cap = MEMORY; /* as if it had grown */
  cp.p_cap = persistent;
  give();
  spin_on(NULL, 1);
  CUdeviceptr weights = segment(2 * CP_MIB);
  fill(weights, 2 * CP_MIB, 99);
  cp_begin_iterations();
  return weights;
}

static void others_turn(void) {
  spoil(LANE);
  give();
  spin_on(NULL, 1);
}

static void forced(uint64_t residue) {
  ask(CP_YIELD_NOW);
  released(CP_BY_FORCE);
  CHECK_THAT(seat_of(0)->residue == residue);
}

/* Whole segments, to the job's own spare memory and back. */
static void on_the_device(void) {
  CUdeviceptr weights = begin_with(16 * CP_MIB), a = segment(3 * CP_MIB), b = segment(CP_MIB), c = segment(5 * CP_MIB);
  fill(a, 3 * CP_MIB, 1);
  fill(c, 5 * CP_MIB, 3);
  OK(cuMemFree_v2(b));
  for (int i = 0; i < 3; i++) {
    forced(8 * CP_MIB);
    CHECK_THAT(seat_of(0)->p_used == 10 * CP_MIB && seat_of(0)->p_live == 2 * CP_MIB);
    CHECK_THAT(seat_of(0)->p_peak == 2 * CP_MIB);
    others_turn();
    CHECK_THAT(holds(a, 3 * CP_MIB, 1) && holds(c, 5 * CP_MIB, 3) && holds(weights, 2 * CP_MIB, 99));
  }
  CHECK_THAT(seat_of(0)->residue_total == 24 * CP_MIB && stub_pinned_bytes() == 0);
  b = segment(CP_MIB);
  CHECK_THAT(seat_of(0)->p_used == 2 * CP_MIB);
  OK(cuMemFree_v2(a));
  OK(cuMemFree_v2(b));
  OK(cuMemFree_v2(c));
  forced(0);
}

/* Otherwise to pinned host memory, which stays. */
static void on_the_host(void) {
  begin_with(8 * CP_MIB);
  CUdeviceptr a = segment(7 * CP_MIB);
  fill(a, 7 * CP_MIB, 1);
  forced(7 * CP_MIB);
  CHECK_THAT(seat_of(0)->p_used == 2 * CP_MIB);
  unsigned long pinned = stub_pinned_bytes();
  others_turn();
  CHECK_THAT(holds(a, 7 * CP_MIB, 1) && pinned >= 7 * CP_MIB);
  forced(7 * CP_MIB);
  CHECK_THAT(stub_pinned_bytes() == pinned);
  others_turn();
  CHECK_THAT(holds(a, 7 * CP_MIB, 1));
  segment(2 * CP_MIB); /* the rest is not needed for what there is, so the device buffer would do for this */
}

/* At a boundary the runtime says which blocks are live; in any order, and not all of it is ours. */
static void listed(bool pinned) {
  begin_with(pinned ? 2 * CP_MIB : MEMORY);
  CUdeviceptr a = segment(20 * CP_MIB), end = cp_extents_base(LANE) + 20 * CP_MIB;
  fill(a, 20 * CP_MIB, 0);
  for (int i = 0; i < 3; i++) {
    uint64_t address[] = {a + 8 * CP_MIB, a, a + 512, end - 4096, end - 512, 4096, a - 1024},
             bytes[] = {CP_MIB, 512, 1024, 4096, 8192, 4096, 1024};
    ask(CP_YIELD_BOUNDARY);
    CHECK_THAT(end_long_step() == 1);
    cp_live_blocks(address, bytes, sizeof bytes / sizeof *bytes);
    released(CP_BY_BOUNDARY);
    CHECK_THAT(seat_of(0)->residue == CP_MIB + 1536 + 4096 && (stub_pinned_bytes() != 0) == pinned);
    others_turn();
    CHECK_THAT(holds(a, 1536, 0) && holds(a + 8 * CP_MIB, CP_MIB, CP_MIB) && !holds(a + CP_MIB, 8, CP_MIB / 8));
    CHECK_THAT(holds(end - 4096, 4096, (20 * CP_MIB - 4096) / 8));
    cp_live_blocks(address, bytes, 1); /* nobody has asked */
  }
}
static void listed_on_the_device(void) { listed(false); }
static void listed_on_the_host(void) { listed(true); }

/* Blocks that are near each other are copied as one. */
static void many_blocks(void) {
  enum { BLOCKS = 4000 };
  static uint64_t address[BLOCKS], bytes[BLOCKS];
  begin_with(MEMORY);
  CUdeviceptr a = segment(20 * CP_MIB);
  fill(a, 20 * CP_MIB, 0);
  for (uint64_t i = 0; i < BLOCKS; i++) {
    uint64_t n = i * 1709 % BLOCKS;
    address[i] = a + n * 4096 + n / 100 * 65536;
    bytes[i] = 512;
  }
  ask(CP_YIELD_BOUNDARY);
  CHECK_THAT(end_long_step() == 1);
  cp_live_blocks(address, bytes, BLOCKS);
  released(CP_BY_BOUNDARY);
  CHECK_THAT(seat_of(0)->residue == 40 * (99 * 4096 + 512));
  others_turn();
  for (uint64_t i = 0; i < BLOCKS; i++) CHECK_THAT(holds(address[i], 512, (address[i] - a) / 8));
}

/* Not known, not said in time, or a list that does not know the segment: all of it. */
static void not_listed(void) {
  begin_with(MEMORY);
  CHECK_THAT(end_long_step() == 0); /* nobody waits */
  ask(CP_YIELD_BOUNDARY);
  CHECK_THAT(end_long_step() == 0); /* nothing is there that could be listed */
  released(CP_BY_BOUNDARY);
  others_turn();
  CUdeviceptr a = segment(2 * CP_MIB);
  fill(a, 2 * CP_MIB, 1);
  for (int said = 0; said < 4; said++) {
    uint64_t before = a - 1024, bytes = 1024;
    ask(CP_YIELD_BOUNDARY);
    CHECK_THAT(end_long_step() == 1);
    if (said == 1) cp_live_blocks(NULL, NULL, UINT64_MAX);
    if (said == 2) cp_live_blocks(NULL, NULL, 0);
    if (said == 3) cp_live_blocks(&before, &bytes, 1);
    released(CP_BY_BOUNDARY);
    CHECK_THAT(seat_of(0)->residue == 2 * CP_MIB);
    cp_live_blocks(NULL, NULL, 0); /* too late */
    others_turn();
    CHECK_THAT(holds(a, 2 * CP_MIB, 1));
  }
}

/* Memory is asked for while the residue is away. */
static void allocated_meanwhile(void) {
  begin_with(16 * CP_MIB);
  CUdeviceptr a = segment(4 * CP_MIB), e, p;
  fill(a, 4 * CP_MIB, 1);
  forced(4 * CP_MIB);
  e = segment(2 * CP_MIB);
  OK(cuMemAlloc_v2(&p, 2 * CP_MIB));
  CHECK_THAT(p != cp_extents_base(BANK) + 2 * CP_MIB);
  others_turn();
  fill(e, 2 * CP_MIB, 2);
  fill(p, 2 * CP_MIB, 3);
  forced(6 * CP_MIB);
  others_turn();
  CHECK_THAT(holds(a, 4 * CP_MIB, 1) && holds(e, 2 * CP_MIB, 2) && holds(p, 2 * CP_MIB, 3));
  OK(cuMemFree_v2(p));
  CHECK_THAT(seat_of(0)->p_used == 2 * CP_MIB && seat_of(0)->p_live == 2 * CP_MIB);
}

/* The job is offloaded and comes back to another device buffer: residue that lies in its device buffer goes along. */
static void offloaded(void) {
  static char store[MEMORY];
  CUdeviceptr weights = begin_with(16 * CP_MIB), a = segment(4 * CP_MIB);
  fill(a, 4 * CP_MIB, 1);
  forced(4 * CP_MIB);
  size_t used = seat_of(0)->p_used;
  memcpy(store, (void *)(uintptr_t)others[BANK], used);
  set_limit(BANK, 0);
  cut_to(BANK, 0, 0);
  spoil(BANK);
  cp_store(&seat_of(0)->bank, 3);
  send_packet(daemon_fd, (struct cp_packet){.type = CP_BANK, .a = 3}, -1);
  int fd = make_memory(MEMORY);
  send_extent(BANK, 3, 0, MEMORY, fd);
  others[BANK] = see(fd);
  memcpy((void *)(uintptr_t)others[BANK], store, used);
  set_limit(BANK, 16 * CP_MIB);
  others_turn();
  CHECK_THAT(holds(a, 4 * CP_MIB, 1) && holds(weights, 2 * CP_MIB, 99));
}

/* Without memory for its residue a job keeps its turn. */
static uint32_t refuse = 1;
static CUresult (*host_alloc)(void **, size_t, unsigned int);
static CUresult no_host_memory(void **memory, size_t bytes, unsigned int flags) {
  if (!cp_load(&refuse)) return host_alloc(memory, bytes, flags);
  cp_add(&first_flag, 1);
  return CUDA_ERROR_OUT_OF_MEMORY;
}
static void no_memory(void) {
  begin_with(2 * CP_MIB);
  CUdeviceptr a = segment(4 * CP_MIB);
  fill(a, 4 * CP_MIB, 1);
  host_alloc = cp_real.cuMemHostAlloc;
  cp_real.cuMemHostAlloc = no_host_memory;
  ask(CP_YIELD_NOW);
  CHECK_THAT(soon(&first_flag));
  for (int i = 0; i < 100; i++) spin_on(NULL, 10); /* it goes on meanwhile */
  CHECK_THAT(seat_of(0)->turn == 1 && holds(a, 4 * CP_MIB, 1));
  cp_store(&refuse, 0);
  released(CP_BY_FORCE);
  others_turn();
  CHECK_THAT(holds(a, 4 * CP_MIB, 1));
}

/* Pinning is slow, so room for residue that grows is made by half as much again, if that much can be had. */
static size_t most_at_once;
static CUresult so_much_host_memory(void **memory, size_t bytes, unsigned flags) {
  return bytes > most_at_once ? CUDA_ERROR_OUT_OF_MEMORY : host_alloc(memory, bytes, flags);
}
static void grows(size_t most, size_t pinned) {
  begin_with(2 * CP_MIB);
  close(add_memory(LANE, MEMORY, 4 * MEMORY));
  set_limit(LANE, cp.e_cap = 5 * MEMORY);
  host_alloc = cp_real.cuMemHostAlloc;
  cp_real.cuMemHostAlloc = so_much_host_memory;
  most_at_once = most;
  segment(3 * MEMORY + CP_MIB);
  forced(3 * MEMORY + CP_MIB);
  CHECK_THAT(stub_pinned_bytes() == 4 * MEMORY);
  others_turn();
  segment(MEMORY);
  forced(4 * MEMORY + CP_MIB);
  CHECK_THAT(stub_pinned_bytes() == pinned);
}
static void grows_by_half(void) { grows(8 * MEMORY, 6 * MEMORY); }
static void grows_as_far_as_there_is_memory(void) { grows(5 * MEMORY, 5 * MEMORY); }

/* A program that has broken its context cannot miss its content, and does not keep its turn. */
static void broken_context(void) {
  begin_with(MEMORY);
  segment(4 * CP_MIB);
  uint64_t nowhere = 8, count = 1;
  OK(cuLaunchKernel(mix, 1, 1, 1, 1, 1, 1, 0, NULL, (void *[]){&nowhere, &count, &count}, NULL));
  CHECK_THAT(cuCtxSynchronize() == CUDA_ERROR_ILLEGAL_ADDRESS);
  forced(0);
}

/* Our stream and pinned memory go with the context in which they are; another one will do. */
static void another_context(void) {
  CUcontext second;
  begin_with(2 * CP_MIB);
  CUdeviceptr a = segment(CP_MIB);
  fill(a, CP_MIB, 1);
  forced(CP_MIB);
  others_turn();
  OK(cuCtxCreate_v2(&second, 0, 0));
  OK(cuDevicePrimaryCtxRelease_v2(0));
  forced(CP_MIB);
  spoil(LANE);
  give();
  OK(cuMemsetD8_v2(a + CP_MIB - 8, 0, 8));
  CHECK_THAT(holds(a, CP_MIB - 8, 1));
}

/* Residue that keeps going to the host: the job asks for room on the device, and does not wait for it. */
static struct cp_packet asks_for_room(uint32_t rounds) {
  for (uint32_t i = 0, seq = seat_of(0)->grow_seq; i < rounds; i++) {
    CHECK_THAT(seat_of(0)->grow_seq == seq);
    if (i) others_turn();
    forced(20 * CP_MIB);
  }
  struct cp_packet p = packet(CP_GROW);
  CHECK_THAT(p.a == BANK && p.b == 22 * CP_MIB && p.d == 1);
  return p;
}
static void room(void) {
  begin_with(2 * CP_MIB);
  CUdeviceptr a = segment(20 * CP_MIB);
  fill(a, 20 * CP_MIB, 1);
  struct cp_packet p = asks_for_room(3);
  set_limit(BANK, 22 * CP_MIB);
  answer(&p, CP_GROW_GRANTED);
  cp_notify(seat_of(0)); /* it is not idle memory */
  for (int i = 0; i < 2; i++) {
    others_turn();
    CHECK_THAT(holds(a, 20 * CP_MIB, 1));
    forced(20 * CP_MIB);
    CHECK_THAT(seat_of(0)->p_used == 22 * CP_MIB && seat_of(0)->p_limit == 22 * CP_MIB);
  }
  others_turn();
  CHECK_THAT(holds(a, 20 * CP_MIB, 1) && seat_of(0)->grow_seq == 1);
  OK(cuMemFree_v2(a));
  forced(0);
  p = packet(CP_SHRUNK); /* now it is */
  CHECK_THAT(p.a == BANK && p.b == 2 * CP_MIB);
}

/* Refused, it asks again after twice as many. */
static void no_room(void) {
  begin_with(2 * CP_MIB);
  CUdeviceptr a = segment(20 * CP_MIB);
  fill(a, 20 * CP_MIB, 1);
  for (uint32_t rounds = 3; rounds <= 12; rounds *= 2) {
    struct cp_packet p = asks_for_room(rounds);
    answer(&p, CP_GROW_DENIED);
    others_turn();
    CHECK_THAT(holds(a, 20 * CP_MIB, 1));
  }
}

/* The program's own need for memory comes first. */
static void room_is_given_up(void) {
  begin_with(2 * CP_MIB);
  segment(20 * CP_MIB);
  struct cp_packet p = asks_for_room(3);
  set_limit(BANK, 22 * CP_MIB);
  answer(&p, CP_GROW_GRANTED);
  others_turn();
  CUdeviceptr b;
  OK(cuMemAlloc_v2(&b, 20 * CP_MIB)); /* without asking */
  CHECK_THAT(seat_of(0)->grow_seq == 1);
  forced(20 * CP_MIB);
  CHECK_THAT(seat_of(0)->p_used == 22 * CP_MIB && stub_pinned_bytes() != 0);
}

int main(int argc, char **argv) {
  static const struct test_case cases[] = {CASE(on_the_device), CASE(on_the_host), CASE(listed_on_the_device),
                                          CASE(listed_on_the_host), CASE(many_blocks), CASE(not_listed),
                                          CASE(allocated_meanwhile), CASE(offloaded), CASE(no_memory),
                                          CASE(broken_context), CASE(another_context), CASE(room), CASE(no_room),
                                          CASE(room_is_given_up), CASE(grows_by_half), CASE(grows_as_far_as_there_is_memory)};
  return run_cases(cases, sizeof cases / sizeof *cases, argc, argv);
}
