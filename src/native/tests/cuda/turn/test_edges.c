/* What must not hold a turn up, and what must not be disturbed by its end: captures, dependent work, forks, failures. */
#include "tests/cuda/job.h"

/* A capture is never disturbed, and the turn ends when it is over. */
static void capture_defers(void) {
  CUgraph graph;
  CUgraphExec exec;
  begin();
  give();
  CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
  OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  spin_on(stream, 10);
  ask(CP_YIELD_NOW);
  cp_step_end(0, 1);
  for (int i = 0; i < 20; i++) {
    flag_on(stream, &first_flag);
    syscall(SYS_nanosleep, &(struct timespec){.tv_nsec = 2000000}, NULL);
    CHECK_THAT(seat_of(0)->turn == 1);
  }
  OK(cuStreamEndCapture(stream, &graph));
  released(CP_BY_FORCE);
  CHECK_THAT(!cp_load(&first_flag));
  give();
  OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
  OK(cuGraphLaunch(exec, stream));
  OK(cuStreamSynchronize(stream));
  CHECK_THAT(cp_load(&first_flag));
}

/* A capture that is begun while others wait still needs the turn. */
static void *begin_capture(void *stream) {
  OK(cuCtxSetCurrent(context));
  OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  cp_store(&first_flag, 1);
  CUgraph graph;
  OK(cuStreamEndCapture(stream, &graph));
  return NULL;
}
static void capture_needs_the_turn(void) {
  begin();
  pthread_t thread = start(begin_capture, new_stream(CU_STREAM_NON_BLOCKING));
  packet(CP_WANT);
  CHECK_THAT(!cp_load(&first_flag));
  give();
  pthread_join(thread, NULL);
}

/* So does giving up the content of memory. */
static void *discard(void *address) {
  size_t bytes = 4096;
  OK(cuCtxSetCurrent(context));
  OK(cuMemDiscardBatchAsync(address, &bytes, 1, 0, NULL));
  cp_store(&first_flag, 1);
  return NULL;
}
static void discarding_needs_the_turn(void) {
  CUdeviceptr address;
  begin();
  OK(cuMemAllocManaged(&address, 4096, CU_MEM_ATTACH_GLOBAL));
  pthread_t thread = start(discard, &address);
  packet(CP_WANT);
  CHECK_THAT(!cp_load(&first_flag));
  give();
  pthread_join(thread, NULL);
}

/* What cannot be held back is told of when it has succeeded, and not before. */
static void outsiders_are_seen(void) {
  begin();
  CUexternalSemaphore semaphore;
  CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC what = {.handle.fd = memfd_create("semaphore", 0)};
  CHECK_THAT(cuImportExternalSemaphore(&semaphore, &what) != CUDA_SUCCESS);
  CHECK_THAT(!(seat_of(0)->traits & CP_TRAIT_UNGATED));
  what.type = CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD;
  CHECK_THAT(!ftruncate(what.handle.fd, 8));
  OK(cuImportExternalSemaphore(&semaphore, &what));
  CHECK_THAT(seat_of(0)->traits & CP_TRAIT_UNGATED);
}

/* Memory that somebody has a handle of stays where it is. */
static void retained_memory_stays(void) {
  CUmemGenericAllocationHandle handle;
  CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
  CUdeviceptr address;
  begin();
  OK(cuMemCreate(&handle, 2 * CP_MIB, &prop, 0));
  OK(cuMemAddressReserve(&address, 2 * CP_MIB, 0, 0, 0));
  OK(cuMemMap(address, 2 * CP_MIB, 0, handle, 0));
  CHECK_THAT(!(seat_of(0)->traits & CP_TRAIT_SHARED));
  OK(cuMemRetainAllocationHandle(&handle, (void *)address));
  CHECK_THAT(seat_of(0)->traits & CP_TRAIT_SHARED);
}

/* A capture that an error has ended holds nobody up, nor does a destroyed stream's. */
static void broken_captures_end(void) {
  CUgraph graph;
  begin();
  give();
  CUstream stream = new_stream(CU_STREAM_NON_BLOCKING), other = new_stream(CU_STREAM_NON_BLOCKING);
  OK(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  CHECK_THAT(cuStreamSynchronize(stream) != CUDA_SUCCESS); /* forbidden: invalidates it */
  CHECK_THAT(cp_capturing());
  CHECK_THAT(cuStreamEndCapture(stream, &graph) != CUDA_SUCCESS && !cp_capturing());
  OK(cuStreamBeginCapture_v2(other, CU_STREAM_CAPTURE_MODE_RELAXED));
  cuStreamDestroy_v2(other);
  CHECK_THAT(!cp_capturing());
  ask(CP_YIELD_NOW);
  released(CP_BY_FORCE);
}

/* What is on the device waits for the job's own next call: the gate opens again, and the turn ends later. */
static void dependent_work(void) {
  static uint32_t word;
  CUdeviceptr address;
  begin();
  give();
  CUstream stream = new_stream(CU_STREAM_NON_BLOCKING), other = new_stream(CU_STREAM_NON_BLOCKING);
  OK(cuMemHostRegister_v2(&word, sizeof word, 0));
  OK(cuMemHostGetDevicePointer_v2(&address, &word, 0));
  OK(cuStreamWaitValue32_v2(stream, address, 1, CU_STREAM_WAIT_VALUE_GEQ));
  flag_on(stream, &first_flag);
  ask(CP_YIELD_NOW);
  while (!cp_load(&cp.ending)) syscall(SYS_nanosleep, &(struct timespec){.tv_nsec = 100000}, NULL);
  OK(cuStreamWriteValue32_v2(other, address, 1, 0)); /* held back until patience has run out */
  released(CP_BY_FORCE);
  CHECK_THAT(cp_load(&first_flag) == 1 && seat_of(0)->turns == 1);
}

/* Calls within a call pass with it, whatever the gate. */
static CUresult launching(CUdeviceptr to, unsigned char value, size_t count, CUstream stream) {
  (void)to, (void)value, (void)count, (void)stream;
  cp_shut_bit(CP_SHUT, true);
  CUresult r = cuLaunchHostFunc(NULL, set_flag, &first_flag);
  cp_shut_bit(CP_SHUT, false);
  return r;
}
static void nested_calls_pass(void) {
  begin();
  give();
  spin_on(NULL, 1);
  cp_real.cuMemsetD8Async = launching;
  OK(cuMemsetD8Async(0, 0, 0, NULL));
  OK(cuCtxSynchronize());
  CHECK_THAT(first_flag == 1);
  ask(CP_YIELD_NOW);
  released(CP_BY_FORCE); /* nothing is in flight for ever */
}

/* A child passes: it has no turns.  Its parent's are as before. */
static void forked_child_passes(void) {
  int status;
  begin();
  pthread_t thread = start(launch_one, &second_flag);
  packet(CP_WANT);
  pid_t pid = fork();
  CHECK_THAT(pid >= 0);
  if (pid == 0) {
    uint64_t at = 1;
    alarm(10);
    CUresult r = cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, NULL, (void *[]){&at}, NULL);
    CHECK_THAT(r != CUDA_SUCCESS); /* the driver's word */
    CUstream stream;
    CHECK_THAT(cuStreamCreate(&stream, 0) != CUDA_SUCCESS);
    _exit(0);
  }
  CHECK_THAT(waitpid(pid, &status, 0) == pid && status == 0);
  CHECK_THAT(!cp_load(&second_flag) && seat_of(0)->turns == 0);
  give();
  pthread_join(thread, NULL);
}

/* The holder goes on without a daemon, and whoever waits then waits on. */
static void daemon_dies(void) {
  begin();
  give();
  spin_on(NULL, 10);
  close(daemon_fd);
  for (int i = 0; i < 100; i++) spin_on(NULL, 10);
  ask(CP_YIELD_NOW);
  while (cp_load(&seat_of(0)->turn)) syscall(SYS_nanosleep, &(struct timespec){.tv_nsec = 100000}, NULL);
  pthread_t thread = start(launch_one, &first_flag);
  while (cp_load(&seat_of(0)->want) != CP_WANT_TURN) syscall(SYS_nanosleep, &(struct timespec){.tv_nsec = 100000}, NULL);
  CHECK_THAT(!cp_load(&first_flag));
  give(); /* the next daemon */
  pthread_join(thread, NULL);
}

/* A context that breaks does not hold its turn for ever, nor does one that is gone. */
static void broken_context(void) {
  CUcontext second;
  begin();
  give();
  OK(cuCtxCreate_v2(&second, 0, 0));
  CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
  spin_on(stream, 30000);
  OK(cuCtxDestroy_v2(second));
  OK(cuCtxSetCurrent(context));
  uint64_t nowhere = 8, count = 1;
  OK(cuLaunchKernel(mix, 1, 1, 1, 1, 1, 1, 0, NULL, (void *[]){&nowhere, &count, &count}, NULL));
  CHECK_THAT(cuCtxSynchronize() == CUDA_ERROR_ILLEGAL_ADDRESS);
  ask(CP_YIELD_NOW);
  released(CP_BY_FORCE);
}

static void primary_released(void) {
  begin();
  give();
  spin_on(NULL, 1000);
  OK(cuDevicePrimaryCtxRelease_v2(0));
  ask(CP_YIELD_NOW);
  released(CP_BY_FORCE);
}

static void begin_without_the_driver(void) {
  int pair[2];
  make_seat_table();
  CHECK_THAT(!socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair));
  daemon_fd = pair[1];
  attach_to(pair, 0);
  cp_step_end(0, 1);
  CHECK_THAT(seat_of(0)->traits == 0);
}

/* Bypass of the gate is seen: the driver is in use, and cuInit has not come through it. */
static void ungated_is_seen(void) {
  begin_without_the_driver();
  void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  CUresult (*init)(unsigned int) = (CUresult(*)(unsigned int))dlsym(library, "cuInit");
  CHECK_THAT(init && init != cuInit);
  OK(init(0));
  cp_step_end(0, 0);
  CHECK_THAT(seat_of(0)->traits == CP_TRAIT_UNGATED);
}

/* An iteration may end while another thread's cuInit, through the gate, has not returned. */
static CUresult (*driver_init)(unsigned int);
static CUresult step_within_init(unsigned int flags) {
  CUresult r = driver_init(flags);
  cp_step_end(0, 0);
  return r;
}
static void gated_while_it_begins(void) {
  begin_without_the_driver();
  cp_driver_start();
  driver_init = cp_real.cuInit;
  cp_real.cuInit = step_within_init;
  OK(cuInit(0));
  CHECK_THAT(seat_of(0)->traits == 0);
}

int main(int argc, char **argv) {
  static const struct test_case cases[] = {CASE(capture_defers), CASE(capture_needs_the_turn),
                                          CASE(discarding_needs_the_turn), CASE(outsiders_are_seen),
                                          CASE(retained_memory_stays), CASE(broken_captures_end), CASE(dependent_work), CASE(nested_calls_pass),
                                          CASE(forked_child_passes), CASE(daemon_dies), CASE(broken_context),
                                          CASE(primary_released), CASE(ungated_is_seen),
                                          CASE(gated_while_it_begins)};
  return run_cases(cases, sizeof cases / sizeof *cases, argc, argv);
}
