/* For debugging a job's memory is closed between its turns: a use of it is an error then, and whatever is done within its
 * turns is as ever. */
#include "tests/cuda/memory/memory_job.h"

#include <poll.h>

/* A job in its iterations, with a turn, memory, and a segment of each class. */
static CUdeviceptr weights, scratch;
static void begin_closed(uint32_t between_turns) {
  close_lane = between_turns;
  begin_granted(0, 0);
  close(add_memory(BANK, 0, PIECE));
  close(add_memory(LANE, 0, 2 * PIECE));
  set_limit(BANK, PIECE);
  set_limit(LANE, 2 * PIECE);
  cp.p_cap = PIECE; /* as if it had grown */
  cp.e_cap = 2 * PIECE;
  give();
  spin_on(NULL, 1);
  weights = segment(CP_MIB);
  cp_begin_iterations();
  scratch = segment(2 * CP_MIB);
  fill(weights, CP_MIB, 1);
  fill(scratch, 2 * CP_MIB, 2);
}

static void lose_turn(void) {
  ask(CP_YIELD_NOW);
  released(CP_BY_FORCE);
}
static void take_turn(void) {
  give();
  spin_on(NULL, 1);
}

/* What the device may do with an address. */
static unsigned long long access_of(CUdeviceptr at) {
  unsigned long long flags = 99;
  CUmemLocation location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  OK(cuMemGetAccess(&flags, &location, at));
  return flags;
}

/* Work that passes beside the gate. */
static CUresult stray_kernel(CUdeviceptr at) {
  uint64_t count = 8, seed = 3;
  OK(cp_real.cuLaunchKernel(mix, 1, 1, 1, 1, 1, 1, 0, NULL, (void *[]){&at, &count, &seed}, NULL));
  return cp_real.cuCtxSynchronize();
}

static void between_turns(void) {
  begin_closed(1);
  CHECK_THAT(access_of(weights) == 3 && access_of(scratch) == 3);
  for (int i = 0; i < 3; i++) {
    lose_turn();
    CHECK_THAT(access_of(weights) == 0 && access_of(scratch) == 0 && seat_of(0)->residue == 2 * CP_MIB);
    take_turn();
    CHECK_THAT(access_of(weights) == 3 && access_of(scratch + PIECE) == 3);
    CHECK_THAT(holds(weights, CP_MIB, 1) && holds(scratch, 2 * CP_MIB, 2));
  }
}

static void stray_kernel_in_the_lane(void) {
  begin_closed(1);
  OK(stray_kernel(scratch));
  lose_turn();
  CHECK_THAT(stray_kernel(scratch) == CUDA_ERROR_ILLEGAL_ADDRESS);
}
static void stray_kernel_in_the_device_buffer(void) {
  begin_closed(1);
  lose_turn();
  CHECK_THAT(stray_kernel(weights) == CUDA_ERROR_ILLEGAL_ADDRESS);
}
static void stray_copy(void) {
  char bytes[64];
  begin_closed(1);
  lose_turn();
  CHECK_THAT(cp_real.cuMemcpyDtoH_v2(bytes, scratch, sizeof bytes) != CUDA_SUCCESS);
  take_turn();
  OK(cuMemcpyDtoH_v2(bytes, scratch, sizeof bytes));
}

/* Without the word nothing is closed. */
static void not_asked_for(void) {
  begin_closed(0);
  lose_turn();
  CHECK_THAT(access_of(weights) == 3 && access_of(scratch) == 3);
  OK(stray_kernel(weights));
}

/* Told in the middle of its life, as by another daemon. */
static void changed(void) {
  begin_closed(0);
  cp_store(&seat_of(0)->close_lane, 1);
  lose_turn();
  CHECK_THAT(access_of(scratch) == 0);
  cp_store(&seat_of(0)->close_lane, 0);
  take_turn();
  lose_turn();
  CHECK_THAT(access_of(scratch) == 3);
}

/* What comes without a turn is closed, also before the first one; what goes can go. */
static void comes_and_goes(void) {
  begin_closed(1);
  lose_turn();
  close(add_memory(LANE, 2 * PIECE, PIECE));
  cut_to(BANK, 9, 0); /* not ours: its answer says that all before it has been read */
  CHECK_THAT(cp_extents_mapped(LANE) == 3 * PIECE && access_of(cp_extents_base(LANE) + 2 * PIECE) == 0);
  take_turn();
  CHECK_THAT(access_of(cp_extents_base(LANE) + 2 * PIECE) == 3);
  close(add_memory(LANE, 3 * PIECE, PIECE));
  cp_extents_take(false);
  CHECK_THAT(access_of(cp_extents_base(LANE) + 3 * PIECE) == 3);
  lose_turn();
  cut_to(LANE, 0, 2 * PIECE);
  take_turn();
  CHECK_THAT(holds(scratch, 2 * CP_MIB, 2) && cp_extents_mapped(LANE) == 2 * PIECE);
}
static void before_the_first_turn(void) {
  close_lane = 1;
  begin_granted(0, 0);
  close(add_memory(LANE, 0, PIECE));
  cut_to(BANK, 9, 0);
  CHECK_THAT(access_of(cp_extents_base(LANE)) == 0);
  take_turn();
  CHECK_THAT(access_of(cp_extents_base(LANE)) == 3);
}

/* The driver refuses for a while: the turn begins when it does so no longer. */
static CUresult (*real_access)(CUdeviceptr, size_t, const CUmemAccessDesc *, size_t);
static CUresult refuse_access(CUdeviceptr at, size_t bytes, const CUmemAccessDesc *access, size_t count) {
  bool refuse = access->flags != CU_MEM_ACCESS_FLAGS_PROT_NONE && cp_add(&first_flag, 1) < 4;
  return refuse ? CUDA_ERROR_OUT_OF_MEMORY : real_access(at, bytes, access, count);
}
static void opens_later(void) {
  begin_closed(1);
  lose_turn();
  real_access = cp_real.cuMemSetAccess;
  cp_real.cuMemSetAccess = refuse_access;
  take_turn();
  CHECK_THAT(cp_load(&first_flag) >= 4 && access_of(weights) == 3 && holds(scratch, 2 * CP_MIB, 2));
}

/* It cannot be closed: the job says so and goes on. */
static CUresult never_close(CUdeviceptr at, size_t bytes, const CUmemAccessDesc *access, size_t count) {
  if (access->flags == CU_MEM_ACCESS_FLAGS_PROT_NONE) return CUDA_ERROR_NOT_SUPPORTED;
  return real_access(at, bytes, access, count);
}
static void cannot_be_closed(void) {
  int ends[2];
  char said[256] = "";
  begin_closed(1);
  CHECK_THAT(!pipe(ends) && dup2(ends[1], STDERR_FILENO) == STDERR_FILENO);
  real_access = cp_real.cuMemSetAccess;
  cp_real.cuMemSetAccess = never_close;
  lose_turn();
  take_turn();
  lose_turn();
  take_turn();
  CHECK_THAT(holds(scratch, 2 * CP_MIB, 2));
  CHECK_THAT(read(ends[0], said, sizeof said - 1) > 0 && strstr(said, "could not be closed"));
  struct pollfd more = {.fd = ends[0], .events = POLLIN};
  CHECK_THAT(poll(&more, 1, 0) == 0); /* once */
}

int main(int argc, char **argv) {
  static const struct test_case cases[] = {CASE(between_turns), CASE(stray_kernel_in_the_lane),
                                          CASE(stray_kernel_in_the_device_buffer), CASE(stray_copy), CASE(not_asked_for),
                                          CASE(changed), CASE(comes_and_goes), CASE(before_the_first_turn),
                                          CASE(opens_later), CASE(cannot_be_closed)};
  return run_cases(cases, sizeof cases / sizeof *cases, argc, argv);
}
