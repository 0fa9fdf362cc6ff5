/* What cuMemAlloc returns in a process that has memory by grant: classes, growth, refusals, frees, and what stays the
 * driver's. */
#include "tests/cuda/memory/memory_job.h"

static const struct cp_seat *seat(void) { return seat_of(0); }
static bool in(uint32_t class_, CUdeviceptr address) { return address - cp_extents_base(class_) < CP_GIB; }

static void begin_served(uint64_t persistent, uint64_t ephemeral) {
  begin_granted(persistent, ephemeral);
  start(grant, NULL);
}

/* Before the first iteration all is persistent; afterwards what PyTorch's allocator asks for is ephemeral. */
static void classes(void) {
  CUdeviceptr a, b, c, d;
  size_t free_bytes, total;
  begin_served(CP_GIB, CP_GIB);
  give();
  a = segment(CP_MIB);
  cp_begin_iterations();
  b = segment(3 * CP_MIB);
  OK(cuMemAlloc_v2(&c, 1000)); /* somebody else's */
  cp_step_begin(0, 1);
  d = segment(CP_MIB);
  CHECK_THAT(in(BANK, a) && in(LANE, b) && in(BANK, c) && in(BANK, d));
  CHECK_THAT(a % 512 == 0 && b % 512 == 0 && c % 512 == 0 && d % 512 == 0);
  CHECK_THAT(seat()->p_live == 2 * CP_MIB + 1024 && seat()->p_used == 4 * CP_MIB && seat()->p_peak == 4 * CP_MIB);
  CHECK_THAT(seat()->e_live == 3 * CP_MIB && seat()->e_peak == 4 * CP_MIB && seat()->fixed == 0);
  OK(cuMemGetInfo_v2(&free_bytes, &total));
  CHECK_THAT(total == 256 * CP_MIB && free_bytes == total - 5 * CP_MIB - 1024);
  OK(cuMemFree_v2(d));
  OK(cuMemFree_v2(b));
  OK(cuMemFreeAsync(c, NULL));
  OK(cuMemFree_v2(a));
  CHECK_THAT(seat()->p_live == 0 && seat()->p_used == 0 && seat()->e_live == 0 && seat()->p_peak == 4 * CP_MIB);
}

static void growth(void) {
  CUdeviceptr at[6];
  begin_served(0, 64 * CP_MIB);
  cp_begin_iterations();
  give();
  spin_on(NULL, 1);
  for (uint64_t i = 0; i < 6; i++) {
    at[i] = segment(3 * CP_MIB); /* across the seams of extents */
    fill(at[i], 3 * CP_MIB, i);
    CHECK_THAT(cp_extents_mapped(LANE) >= seat()->e_peak && seat()->e_peak >= (i + 1) * 3 * CP_MIB);
  }
  for (uint64_t i = 0; i < 6; i++) CHECK_THAT(holds(at[i], 3 * CP_MIB, i));
  CHECK_THAT(seat()->e_limit == 20 * CP_MIB && cp_extents_mapped(LANE) == seat()->e_limit);
  CHECK_THAT(granting.optional == 5 && granting.waiting == 0);
  OK(cuMemFree_v2(at[2]));
  CHECK_THAT(segment(CP_MIB) == at[2]); /* room that is there is used first */
}

/* PyTorch's allocator is told that memory is short before it has to wait, so that it gives back what it can spare. */
static void refusal(void) {
  CUdeviceptr a, b;
  begin_served(0, 8 * CP_MIB);
  cp_begin_iterations();
  a = segment(7 * CP_MIB);
  CHECK_THAT(cp_segment_alloc(&b, 6 * CP_MIB, true) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK_THAT(granting.optional == 2 && granting.waiting == 0 && granting.denied == 1);
  OK(cuMemFree_v2(a));
  b = segment(6 * CP_MIB); /* it fits now: nobody is asked */
  CHECK_THAT(granting.optional + granting.waiting == 2);
  CHECK_THAT(cp_segment_alloc(&a, 6 * CP_MIB, true) == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK_THAT(cp_segment_alloc(&a, 6 * CP_MIB, true) == CUDA_ERROR_OUT_OF_MEMORY); /* denied for good */
  CHECK_THAT(granting.optional == 3 && granting.waiting == 1 && granting.denied == 3);
  CHECK_THAT(cp_segment_alloc(&a, 4 * CP_GIB, true) == CUDA_ERROR_OUT_OF_MEMORY && granting.denied == 3);
  CHECK_THAT(cuMemAlloc_v2(&a, CP_MIB) == CUDA_ERROR_OUT_OF_MEMORY && granting.waiting == 2); /* others just wait */
  CHECK_THAT(holds(b, 0, 0) && cuMemAlloc_v2(&a, 0) == CUDA_ERROR_INVALID_VALUE);
}

/* A refusal is final where PyTorch's allocator does not ask again: then it waits for the answer at once. */
static void pool_scopes(void) {
  CUdeviceptr a;
  begin_served(0, 8 * CP_MIB);
  CHECK_THAT(cp_segment_alloc(&a, CP_MIB, true) == CUDA_ERROR_OUT_OF_MEMORY); /* persistent */
  CHECK_THAT(granting.optional == 0 && granting.waiting == 1);
  cp_begin_iterations();
  cp_pool_scope(1);
  a = segment(CP_MIB);
  CHECK_THAT(granting.optional == 0 && granting.waiting == 2);
  cp_pool_scope(-1);
  a = segment(4 * CP_MIB);
  CHECK_THAT(granting.optional == 1 && granting.waiting == 2 && in(LANE, a));
}

/* The second request waits until there is an answer. */
static void *second_request(void *result) {
  CUdeviceptr at;
  OK(cuCtxSetCurrent(context));
  CHECK_THAT(cp_segment_alloc(&at, CP_MIB, true) == CUDA_ERROR_OUT_OF_MEMORY);
  cp_store(&first_flag, 1);
  OK(cp_segment_alloc(&at, CP_MIB, true));
  fill(at, CP_MIB, 3);
  cp_store(&second_flag, 1);
  *(CUdeviceptr *)result = at;
  return NULL;
}
static void waits_for_an_answer(void) {
  CUdeviceptr at;
  begin_granted(0, 0);
  cp_begin_iterations();
  give();
  spin_on(NULL, 1);
  pthread_t thread = start(second_request, &at);
  struct cp_packet p = packet(CP_GROW);
  CHECK_THAT(p.a == LANE && p.b == 2 * CP_MIB && p.d == 1 && seat()->grow_class == (1 | 256));
  answer(&p, CP_GROW_DENIED);
  p = packet(CP_GROW);
  CHECK_THAT(p.d == 0 && seat()->grow_class == 1 && seat()->grow_total == 2 * CP_MIB);
  CHECK_THAT(cp_load(&first_flag) == 1 && cp_load(&second_flag) == 0);
  close(add_memory(LANE, 0, PIECE));
  set_limit(LANE, 2 * CP_MIB);
  answer(&p, CP_GROW_GRANTED);
  pthread_join(thread, NULL);
  CHECK_THAT(holds(at, CP_MIB, 3) && cp_extents_mapped(LANE) == PIECE);
}

/* Its turn cannot end before: whoever else was given the memory would wait for that turn. */
static void *capture(void *unused) {
  CUgraph graph;
  CUstream stream;
  CUdeviceptr at;
  OK(cuCtxSetCurrent(context));
  OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  OK(cp_segment_alloc(&at, CP_MIB, true));
  OK(cuStreamEndCapture(stream, &graph));
  return unused;
}
static void asks_first_in_a_capture(void) {
  begin_granted(0, 0);
  cp_begin_iterations();
  give();
  pthread_t thread = start(capture, NULL);
  struct cp_packet p = packet(CP_GROW);
  CHECK_THAT(p.a == LANE && p.d == 2 && seat()->grow_class == (1 | 1024));
  close(add_memory(LANE, 0, PIECE));
  set_limit(LANE, CP_MIB);
  answer(&p, CP_GROW_GRANTED);
  pthread_join(thread, NULL);
}

/* What PyTorch's allocator has given back must not stand in the way of what it asks for then. */
static void *ask_twice(void *unused) {
  OK(cuCtxSetCurrent(context));
  CUdeviceptr a = segment(8 * CP_MIB), b;
  cp_begin_iterations();
  CHECK_THAT(cp_segment_alloc(&b, 8 * CP_MIB, true) == CUDA_ERROR_OUT_OF_MEMORY);
  OK(cuMemFree_v2(a));
  OK(cp_segment_alloc(&b, 8 * CP_MIB, true));
  return unused;
}
static void gives_back_first(void) {
  begin_granted(0, 0);
  pthread_t thread = start(ask_twice, NULL);
  struct cp_packet p = packet(CP_GROW);
  set_limit(BANK, 8 * CP_MIB);
  answer(&p, CP_GROW_GRANTED);
  p = packet(CP_GROW);
  answer(&p, CP_GROW_DENIED);
  CHECK_THAT(p.a == LANE && p.d == 1);
  p = packet(CP_SHRUNK);
  CHECK_THAT(p.a == BANK && p.b == 0 && cp.p_cap == 0);
  set_limit(BANK, 0);
  p = packet(CP_GROW);
  CHECK_THAT(p.a == LANE && p.d == 0);
  set_limit(LANE, 8 * CP_MIB);
  answer(&p, CP_GROW_GRANTED);
  pthread_join(thread, NULL);
}

/* Without a turn much unused memory is given back. */
static void idle_memory(void) {
  begin_granted(0, 0);
  close(add_memory(BANK, 0, 64 * CP_MIB));
  set_limit(BANK, 64 * CP_MIB);
  give(); /* until then it is not idle */
  cp.p_cap = 64 * CP_MIB;
  CUdeviceptr a = segment(20 * CP_MIB), b = segment(40 * CP_MIB);
  OK(cuMemFree_v2(b));
  ask(CP_YIELD_NOW);
  released(CP_BY_FORCE);
  struct cp_packet p = packet(CP_SHRUNK);
  CHECK_THAT(p.a == BANK && p.b == 20 * CP_MIB && seat()->p_used == 20 * CP_MIB && cp.p_cap == 20 * CP_MIB);
  cut_to(BANK, 0, 64 * CP_MIB);
  (void)a;
}

/* A limit that has come down is asked for again, and what is not granted is not used. */
static void lowered_limit(void) {
  begin_granted(0, 0);
  cp_begin_iterations();
  close(add_memory(LANE, 0, 2 * PIECE));
  set_limit(LANE, 2 * PIECE);
  cp.e_cap = 2 * PIECE; /* as if it had grown */
  give();
  spin_on(NULL, 1);
  CUdeviceptr a = segment(PIECE);
  set_limit(LANE, PIECE);
  OK(cuMemFree_v2(a));
  ask(CP_YIELD_NOW);
  released(CP_BY_FORCE);
  cut_to(LANE, 0, 0);
  a = segment(PIECE); /* without a turn it is not touched: an address is all that is needed */
  close(add_memory(LANE, 0, PIECE));
  give();
  spin_on(NULL, 1);
  fill(a, PIECE, 1);
  pthread_t thread = start(grant, NULL);
  CUdeviceptr b;
  CHECK_THAT(cp_segment_alloc(&b, PIECE, true) == CUDA_ERROR_OUT_OF_MEMORY && granting.denied == 1);
  (void)thread;
}

/* Freed memory is used again when the device has ended what it was told before. */
static void frees_wait_for_the_device(void) {
  begin_served(CP_GIB, 0);
  give();
  CUdeviceptr a = segment(CP_MIB);
  CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
  spin_on(stream, 50000);
  flag_on(stream, &first_flag);
  OK(cuMemFree_v2(a));
  CHECK_THAT(cp_load(&first_flag) == 1);
  CHECK_THAT(cuMemFree_v2(a) == CUDA_ERROR_INVALID_VALUE && cuMemFree_v2(a + 256) == CUDA_ERROR_INVALID_VALUE);
  OK(cuMemFree_v2(0));
}

/* A capture forbids to wait: the memory is put aside, and the capture goes on. */
static void frees_during_a_capture(void) {
  CUgraph graph;
  begin_served(CP_GIB, CP_GIB);
  give();
  CUdeviceptr a = segment(CP_MIB), b;
  cp_begin_iterations();
  CUdeviceptr e = segment(CP_MIB), f = segment(CP_MIB);
  CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
  OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  OK(cuMemFree_v2(a));
  OK(cuMemFree_v2(e));
  OK(cuMemFree_v2(f));
  CHECK_THAT(cuMemFree_v2(a) == CUDA_ERROR_INVALID_VALUE);
  b = segment(CP_MIB);
  CHECK_THAT(b != e && b != f);
  spin_on(stream, 10);
  OK(cuStreamEndCapture(stream, &graph));
  CHECK_THAT(seat()->p_live == CP_MIB && seat()->e_live == 3 * CP_MIB);
  CHECK_THAT(segment(CP_MIB) == e && seat()->p_live == 0 && seat()->e_live == 2 * CP_MIB);
  CHECK_THAT(granting.waiting == 1); /* for what is persistent */
  OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  segment(16 * CP_MIB); /* in a capture there is no second try */
  CHECK_THAT(granting.waiting == 2);
  OK(cuStreamEndCapture(stream, &graph));
}

/* Nor does a capture that we do not know of let anybody wait. */
static CUresult (*synchronize)(void);
static CUresult implicit_capture(void) {
  return cp_load(&first_flag) ? synchronize() : CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
}
static void frees_during_another_capture(void) {
  begin_served(CP_GIB, 0);
  give();
  CUdeviceptr a = segment(CP_MIB);
  synchronize = cp_real.cuCtxSynchronize;
  cp_real.cuCtxSynchronize = implicit_capture;
  OK(cuMemFree_v2(a));
  CHECK_THAT(segment(CP_MIB) != a && seat()->p_live == 2 * CP_MIB);
  cp_store(&first_flag, 1);
  CHECK_THAT(segment(CP_MIB) == a && seat()->p_live == 2 * CP_MIB);
}

/* What is not cuMemAlloc's is the driver's, and counted. */
static void fixed_memory(void) {
  CUdeviceptr a, b;
  begin_served(CP_GIB, 0);
  give();
  OK(cuMemAllocManaged(&a, 8 * CP_MIB, CU_MEM_ATTACH_GLOBAL));
  OK(cuMemAllocAsync(&b, 2 * CP_MIB, NULL));
  CHECK_THAT(seat()->fixed == 10 * CP_MIB && seat()->p_live == 0 && !in(BANK, a) && !in(BANK, b));
  OK(cuMemFree_v2(a));
  CHECK_THAT(seat()->fixed == 2 * CP_MIB && !(seat()->traits & CP_TRAIT_FIXED));
  OK(cuMemAllocManaged(&a, 256 * CP_MIB, CU_MEM_ATTACH_GLOBAL));
  CHECK_THAT(seat()->fixed == 258 * CP_MIB && seat()->traits & CP_TRAIT_FIXED);
  OK(cuMemFree_v2(a));
  CHECK_THAT(seat()->fixed == 2 * CP_MIB && seat()->traits & CP_TRAIT_FIXED);
}

/* What was allocated before the process attached is the driver's for good. */
static void allocated_before(void) {
  int pair[2];
  CUdeviceptr a;
  whole = 0;
  make_seat_table();
  CHECK_THAT(!socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair));
  daemon_fd = pair[1];
  use_device();
  OK(cuMemAlloc_v2(&a, 2 * CP_MIB));
  attach_to(pair, 0);
  CHECK_THAT(seat()->fixed == 2 * CP_MIB);
  OK(cuMemFree_v2(a));
  CHECK_THAT(seat()->fixed == 0);
}

static void *without_context(void *unused) {
  CUdeviceptr at;
  CHECK_THAT(cuMemAlloc_v2(&at, CP_MIB) == CUDA_ERROR_INVALID_CONTEXT);
  return unused;
}
static void needs_a_context(void) {
  begin_served(CP_GIB, 0);
  pthread_join(start(without_context, NULL), NULL);
}

int main(int argc, char **argv) {
  static const struct test_case cases[] = {CASE(classes), CASE(growth), CASE(refusal), CASE(pool_scopes), CASE(waits_for_an_answer),
                                          CASE(asks_first_in_a_capture),
                                          CASE(gives_back_first), CASE(idle_memory), CASE(lowered_limit),
                                          CASE(frees_wait_for_the_device), CASE(frees_during_a_capture), CASE(frees_during_another_capture),
                                          CASE(fixed_memory), CASE(allocated_before), CASE(needs_a_context)};
  return run_cases(cases, sizeof cases / sizeof *cases, argc, argv);
}
