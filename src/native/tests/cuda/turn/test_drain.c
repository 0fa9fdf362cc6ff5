/* Which streams the end of a turn asks about: those that have got work since they were last drained.  And what becomes
 * of it where a launch queue is full. */
#include "tests/cuda/job.h"

#define SIDE_STREAMS 128

extern unsigned long stub_calls(const char *name);
static unsigned long queries(void) { return stub_calls("cuStreamQuery"); }

/* Ends the turn when the device has nothing more to do; returns how many streams that has asked about. */
static unsigned long queries_of_an_end(void) {
  OK(cuCtxSynchronize());
  unsigned long before = queries();
  ask(CP_YIELD_NOW);
  released(CP_BY_FORCE);
  return queries() - before;
}

/* So often, or the turn has ended without. */
static void until_asked(unsigned long times) {
  while (cp_load(&seat_of(0)->turn) && queries() < times) sched_yield();
}

/* Side streams that are noted by the same bit. */
static CUstream side[SIDE_STREAMS];
static unsigned long alike(CUstream stream) {
  unsigned long n = 0;
  for (int i = 0; i < SIDE_STREAMS; i++) n += cp_stream_bit(side[i]) == cp_stream_bit(stream);
  return n;
}

static void idle_side_streams_are_not_asked_again(void) {
  begin();
  give();
  for (int i = 0; i < SIDE_STREAMS; i++) spin_on(side[i] = new_stream(CU_STREAM_NON_BLOCKING), 1);
  CHECK_THAT(queries_of_an_end() == 1 + SIDE_STREAMS); /* 1: the default stream */
  give();
  spin_on(side[5], 1);
  CHECK_THAT(queries_of_an_end() == 1 + alike(side[5]) && alike(side[5]) < 8);
  give();
  spin_on(NULL, 1);
  CHECK_THAT(queries_of_an_end() == 1 + alike(NULL));
}

/* ---- every way in which a stream gets work ----------------------------------------------------------------------- */

static CUdeviceptr data;
static uint32_t *word;
static CUgraphExec graph;
static CUevent event;
static uint64_t us = 1;
static void *spin_params[] = {&us};

static void launch(CUstream stream) { spin_on(stream, 1); }
static void launch_ex(CUstream stream) {
  CUlaunchConfig config = {.gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1, .blockDimY = 1, .blockDimZ = 1,
                           .hStream = stream};
  OK(cuLaunchKernelEx(&config, spin, spin_params, NULL));
}
static void launch_list(CUstream stream) { /* the driver need not have it */
  CUDA_LAUNCH_PARAMS list = {.function = spin, .gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1,
                             .blockDimY = 1, .blockDimZ = 1, .hStream = stream, .kernelParams = spin_params};
  cuLaunchCooperativeKernelMultiDevice(&list, 1, 0);
}
static void copy(CUstream stream) { OK(cuMemcpyDtoDAsync_v2(data, data + 4096, 4096, stream)); }
static void memset_(CUstream stream) { OK(cuMemsetD8Async(data, 1, 4096, stream)); }
static void graph_launch(CUstream stream) { OK(cuGraphLaunch(graph, stream)); }
static void event_wait(CUstream stream) { OK(cuStreamWaitEvent(stream, event, 0)); }
static void host_function(CUstream stream) { flag_on(stream, &second_flag); }
static void alloc_async(CUstream stream) { OK(cuMemAllocAsync(&(CUdeviceptr){0}, 4096, stream)); }
static void mem_ops(CUstream stream) {
  CUstreamBatchMemOpParams op = {.writeValue = {.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32,
                                                .address = (CUdeviceptr)(uintptr_t)word, .value = 1}};
  OK(cuStreamBatchMemOp_v2(stream, 1, &op, 0));
}
static void (*const ways[])(CUstream) = {launch,     launch_ex,     launch_list, copy,   memset_, graph_launch,
                                         event_wait, host_function, alloc_async, mem_ops};

static void prepare(void) {
  CUgraph captured;
  CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
  OK(cuMemAlloc_v2(&data, 8192));
  OK(cuMemHostAlloc((void **)&word, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
  OK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  spin_on(stream, 1);
  OK(cuStreamEndCapture(stream, &captured));
  OK(cuGraphInstantiateWithFlags(&graph, captured, 0));
}

/* What stands before it in the stream has come there beside the gate, so it alone tells that the stream is busy. */
static void is_drained(void (*way)(CUstream), CUstream stream) {
  uint32_t go = 0, done = 0;
  OK(cp_real.cuLaunchHostFunc(stream, wait_for_flag, &go));
  way(stream);
  OK(cp_real.cuLaunchHostFunc(stream, set_flag, &done));
  unsigned long before = queries();
  ask(CP_YIELD_NOW);
  until_asked(before + 2);
  CHECK_THAT(cp_load(&seat_of(0)->turn));
  cp_store(&go, 1);
  released(CP_BY_FORCE);
  CHECK_THAT(cp_load(&done));
}

static void work_of_every_way_is_drained(void) {
  begin();
  give();
  prepare();
  CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
  queries_of_an_end();
  for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
    give();
    spin_on(NULL, 1); /* the gate is open */
    is_drained(ways[i], stream);
  }
}

/* The gate opens again while work takes too long: it is asked about when the turn ends after all. */
static void work_that_took_too_long_is_asked_about_again(void) {
  static uint32_t go;
  begin();
  give();
  CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
  hold_on(stream, &go);
  flag_on(stream, &first_flag);
  ask(CP_YIELD_NOW);
  spin_on(NULL, 1); /* comes through when the gate is open again */
  cp_store(&go, 1);
  released(CP_BY_FORCE);
  CHECK_THAT(cp_load(&first_flag));
}

/* ---- contexts that are made beside the gate, as by cuGetExportTable ---------------------------------------------- */

static void a_context_is_noticed_at_its_first_stream(void) {
  static uint32_t go;
  CUcontext hidden, before;
  begin();
  give();
  spin_on(NULL, 1);
  OK(cp_real.cuCtxCreate_v4(&hidden, NULL, 0, 0));
  hold_on(NULL, &go);
  ask(CP_YIELD_NOW);
  released(CP_BY_FORCE); /* nobody knows of its default stream */
  cp_store(&go, 1);
  give();
  cp_store(&go, 0);
  CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
  hold_on(NULL, &go);
  flag_on(NULL, &first_flag);
  spin_on(stream, 1);
  OK(cp_real.cuCtxPopCurrent_v2(&before));
  unsigned long asked = queries();
  ask(CP_YIELD_NOW);
  until_asked(asked + 3);
  cp_store(&go, 1);
  released(CP_BY_FORCE);
  CHECK_THAT(before == hidden && cp_load(&first_flag)); /* from now on it is drained, too */
}

/* ---- calls that wait in the driver, for what the device waits for ------------------------------------------------ */

#define QUEUE 1024 /* entries of a launch queue */

static uint32_t go, shut;
static CUstream full, other;

static void *let_it_go(void *unused) {
  OK(cuCtxSetCurrent(context));
  CHECK_THAT(soon(&shut));
  flag_on(other, &go); /* needs the gate */
  return unused;
}

/* The turn is taken while one thread waits in the driver until the other one has come through the gate. */
static void taken_from(void *(*fill_queue)(void *), const char *blocked, unsigned long calls) {
  begin();
  give();
  full = new_stream(CU_STREAM_NON_BLOCKING);
  other = new_stream(CU_STREAM_NON_BLOCKING);
  start(fill_queue, NULL);
  start(let_it_go, NULL);
  while (stub_calls(blocked) < calls) syscall(SYS_nanosleep, &(struct timespec){.tv_nsec = 100000}, NULL);
  ask(CP_YIELD_NOW);
  while (!(cp_load(&cp_shut) & CP_SHUT)) syscall(SYS_nanosleep, &(struct timespec){.tv_nsec = 1}, NULL);
  cp_store(&shut, 1);
  released(CP_BY_FORCE);
  CHECK_THAT(cp_load(&go));
}

static void *launch_many(void *unused) {
  OK(cuCtxSetCurrent(context));
  hold_on(full, &go);
  for (int i = 0; i < 5000; i++) spin_on(full, 0);
  return unused;
}
static void a_launch_that_waits_for_another_call(void) { taken_from(launch_many, "cuLaunchKernel", QUEUE); }

/* Another job waits for the turn: the boundary records an event, which is one entry too many. */
static void *end_an_iteration(void *unused) {
  OK(cuCtxSetCurrent(context));
  watch_it();
  hold_on(full, &go);
  for (int i = 1; i < QUEUE; i++) spin_on(full, 0);
  cp_step_end(0, 0);
  return unused;
}
static void a_boundary_that_waits_for_another_call(void) { taken_from(end_an_iteration, "cuEventRecord", 1); }

int main(int argc, char **argv) {
  static const struct test_case cases[] = {
      CASE(idle_side_streams_are_not_asked_again),     CASE(work_of_every_way_is_drained),
      CASE(work_that_took_too_long_is_asked_about_again), CASE(a_context_is_noticed_at_its_first_stream),
      CASE(a_launch_that_waits_for_another_call),      CASE(a_boundary_that_waits_for_another_call)};
  return run_cases(cases, sizeof cases / sizeof *cases, argc, argv);
}
