/* Questions about addresses whose memory is away: the program gets the answer that it would get alone. */
#include "tests/cuda/memory/memory_job.h"

static CUdeviceptr at;

static void *ask_single(void *unused) {
  CUdeviceptr pointer = 0;
  OK(cuPointerGetAttribute(&pointer, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, at + 8));
  CHECK_THAT(pointer == at + 8 && seat_of(0)->turn == 1);
  return unused;
}

static void *ask_several(void *unused) {
  unsigned int type = 0;
  CUdeviceptr pointer = 0;
  CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_POINTER};
  OK(cuPointerGetAttributes(2, attributes, (void *[]){&type, &pointer}, at));
  CHECK_THAT(type == CU_MEMORYTYPE_DEVICE && pointer == at && seat_of(0)->turn == 1);
  return unused;
}

static void *set_one(void *unused) {
  unsigned int yes = 1;
  OK(cuPointerSetAttribute(&yes, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, at));
  CHECK_THAT(seat_of(0)->turn == 1);
  return unused;
}

static void begin_with_segment(void) {
  begin_granted(0, 0);
  cp_begin_iterations();
  close(add_memory(LANE, 0, PIECE));
  set_limit(LANE, PIECE);
  cp.e_cap = PIECE;
  give();
  spin_on(NULL, 1);
  at = segment(PIECE);
}

/* The lane has been cut: the question waits for the turn, with which the memory comes back. */
static void away_with(void *(*question)(void *)) {
  begin_with_segment();
  ask(CP_YIELD_NOW);
  released(CP_BY_FORCE);
  cut_to(LANE, 0, 0);
  pthread_t thread = start(question, NULL);
  packet(CP_WANT);
  close(add_memory(LANE, 0, PIECE));
  give();
  pthread_join(thread, NULL);
}
static void single(void) { away_with(ask_single); }
static void several(void) { away_with(ask_several); }
static void setting(void) { away_with(set_one); }

/* Nobody waits for what is mapped, for what the driver will never know, nor for other memory. */
static void not_away(void) {
  CUdeviceptr pointer;
  begin_with_segment();
  ask(CP_YIELD_NOW);
  released(CP_BY_FORCE);
  OK(cuPointerGetAttribute(&pointer, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, at));
  CHECK_THAT(cuPointerGetAttribute(&pointer, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, at + PIECE) != CUDA_SUCCESS);
  CHECK_THAT(cuPointerGetAttribute(&pointer, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, (uintptr_t)&pointer) != CUDA_SUCCESS);
  CHECK_THAT(seat_of(0)->turns == 1 && seat_of(0)->want == CP_WANT_NO);
}

/* As cudaMalloc's, whatever the extents below, and wherever they are. */
static void ranges(void) {
  CUdeviceptr base, other;
  size_t bytes;
  begin_with_segment();
  OK(cuMemFree_v2(at));
  at = segment(CP_MIB);
  other = segment(2 * CP_MIB);
  ask(CP_YIELD_NOW);
  released(CP_BY_FORCE);
  cut_to(LANE, 0, 0);
  OK(cuMemGetAddressRange_v2(&base, &bytes, at + CP_MIB - 1));
  CHECK_THAT(base == at && bytes == CP_MIB);
  OK(cuMemGetAddressRange_v2(&base, &bytes, other));
  CHECK_THAT(base == other && bytes == 2 * CP_MIB);
  base = bytes = 0;
  OK(cuMemGetAddressRange_v2(NULL, &bytes, other + 4096));
  OK(cuMemGetAddressRange_v2(&base, NULL, other + 4096));
  OK(cuMemGetAddressRange_v2(NULL, NULL, other + 4096));
  CHECK_THAT(base == other && bytes == 2 * CP_MIB);
  CHECK_THAT(cuMemGetAddressRange_v2(&base, &bytes, other + 2 * CP_MIB) == CUDA_ERROR_NOT_FOUND);
  OK(cuMemAllocManaged(&at, CP_MIB, CU_MEM_ATTACH_GLOBAL));
  OK(cuMemGetAddressRange_v2(&base, &bytes, at + 100));
  CHECK_THAT(base == at && bytes == CP_MIB);
}

/* The same by attributes, alone and among others. */
static void ranges_by_attribute(void) {
  CUdeviceptr base = 0, pointer = 0, other;
  size_t bytes = 0;
  CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_RANGE_SIZE, CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
                                      CU_POINTER_ATTRIBUTE_RANGE_START_ADDR};
  begin_with_segment();
  OK(cuMemFree_v2(at));
  at = segment(CP_MIB);
  other = segment(2 * CP_MIB);
  OK(cuPointerGetAttribute(&base, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, other + 100));
  OK(cuPointerGetAttribute(&bytes, CU_POINTER_ATTRIBUTE_RANGE_SIZE, other + 100));
  CHECK_THAT(base == other && bytes == 2 * CP_MIB);
  OK(cuPointerGetAttributes(3, attributes, (void *[]){&bytes, &pointer, &base}, at + 8));
  CHECK_THAT(bytes == CP_MIB && pointer == at + 8 && base == at);
  OK(cuMemAllocManaged(&at, 3 * CP_MIB, CU_MEM_ATTACH_GLOBAL)); /* the driver's own */
  OK(cuPointerGetAttributes(3, attributes, (void *[]){&bytes, &pointer, &base}, at + 100));
  CHECK_THAT(bytes == 3 * CP_MIB && pointer == at + 100 && base == at);
}

int main(int argc, char **argv) {
  static const struct test_case cases[] = {CASE(single), CASE(several), CASE(setting), CASE(not_away), CASE(ranges),
                                          CASE(ranges_by_attribute)};
  return run_cases(cases, sizeof cases / sizeof *cases, argc, argv);
}
