/* What fails for a while, or at a bad moment, neither ends a turn too early nor a job. */
#include "tests/cuda/memory/memory_job.h"

#include <stdlib.h>

/* ---- a context that is being released ---------------------------------------------------------------------------------- */

static CUresult (*release)(CUdevice);
static CUresult release_slowly(CUdevice device) {
  cp_store(&first_flag, 1);
  CHECK_THAT(soon(&second_flag));
  return release(device);
}
static void *release_one(void *unused) {
  OK(cuDevicePrimaryCtxRelease_v2(0));
  return unused;
}

static CUdeviceptr begin_with_residue(void) {
  begin_granted(0, 0);
  close(add_memory(LANE, 0, PIECE));
  set_limit(LANE, PIECE);
  cp.e_cap = PIECE; /* as if it had grown */
  cp_begin_iterations();
  give();
  spin_on(NULL, 1);
  CUdeviceptr a = segment(CP_MIB);
  fill(a, CP_MIB, 1);
  return a;
}

/* The helper leaves the context alone meanwhile: so it does not know whether its work has ended, nor can it save anything. */
static void while_it_is_released(void) {
  CUdeviceptr a = begin_with_residue();
  OK(cuDevicePrimaryCtxRetain(&context, 0));
  release = cp_real.cuDevicePrimaryCtxRelease_v2;
  cp_real.cuDevicePrimaryCtxRelease_v2 = release_slowly;
  pthread_t thread = start(release_one, NULL);
  CHECK_THAT(soon(&first_flag));
  ask(CP_YIELD_NOW);
  while (!cp_load(&cp.ending)) syscall(SYS_nanosleep, &(struct timespec){.tv_nsec = 100000}, NULL);
  while (cp_load(&cp.ending)) syscall(SYS_nanosleep, &(struct timespec){.tv_nsec = 100000}, NULL);
  CHECK_THAT(seat_of(0)->turn == 1);
  cp_store(&second_flag, 1);
  pthread_join(thread, NULL);
  released(CP_BY_FORCE);
  CHECK_THAT(seat_of(0)->residue == CP_MIB);
  give();
  spin_on(NULL, 1);
  CHECK_THAT(holds(a, CP_MIB, 1));
}

/* ---- events that cannot be made ---------------------------------------------------------------------------------------- */

static CUresult (*make_event)(CUevent *, unsigned int);
static CUresult make_event_later(CUevent *event, unsigned int flags) {
  if (cp_load(&first_flag)) return make_event(event, flags);
  cp_add(&second_flag, 1);
  return CUDA_ERROR_OUT_OF_MEMORY;
}
static void fail_events(void) {
  make_event = cp_real.cuEventCreate;
  cp_real.cuEventCreate = make_event_later;
}

/* Work in a per-thread default stream, of a thread that has ended: its end is known only by an event. */
static void *launch_in_own(void *unused) {
  OK(cuCtxSetCurrent(context));
  OK(cuLaunchHostFunc_ptsz(NULL, wait_for_flag, &second_flag)); /* until an event could not be made */
  OK(cuLaunchHostFunc_ptsz(NULL, set_flag, &first_flag));
  return unused;
}
static void *take_its_record(void *unused) {
  OK(cuCtxSetCurrent(context));
  spin_on(new_stream(CU_STREAM_NON_BLOCKING), 1);
  return unused;
}
/* The stub driver's answer is about all blocking streams, which a GPU's need not be. */
static CUresult (*query)(CUstream);
static CUresult query_others(CUstream stream) { return stream == CU_STREAM_LEGACY ? CUDA_SUCCESS : query(stream); }
static void own_stream(void) {
  begin();
  give();
  fail_events();
  query = cp_real.cuStreamQuery;
  cp_real.cuStreamQuery = query_others;
  pthread_join(start(launch_in_own, NULL), NULL);
  pthread_join(start(take_its_record, NULL), NULL);
  ask(CP_YIELD_NOW);
  released(CP_BY_FORCE);
  CHECK_THAT(cp_load(&first_flag) == 1 && cp_load(&second_flag) > 0);
}

/* Work in a stream that has been destroyed since. */
static void destroyed_stream(void) {
  begin();
  give();
  CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
  fail_events();
  hold_on(stream, &second_flag);
  flag_on(stream, &first_flag);
  OK(cuStreamDestroy_v2(stream));
  ask(CP_YIELD_NOW);
  released(CP_BY_FORCE);
  CHECK_THAT(cp_load(&first_flag) == 1 && cp_load(&second_flag) > 0 && !(seat_of(0)->traits & CP_TRAIT_UNGATED));
}

/* More streams than ends can be noted. */
static void many_destroyed(void) {
  begin();
  give();
  for (int i = 0; i < 600; i++) {
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    spin_on(stream, 50);
    OK(cuStreamDestroy_v2(stream));
  }
  ask(CP_YIELD_NOW);
  released(CP_BY_FORCE);
  CHECK_THAT(!(seat_of(0)->traits & CP_TRAIT_UNGATED));
}

/* ---- memory that cannot be had at once ----------------------------------------------------------------------------------- */

static CUresult (*import)(CUmemGenericAllocationHandle *, void *, CUmemAllocationHandleType);
static CUresult import_later(CUmemGenericAllocationHandle *handle, void *shared, CUmemAllocationHandleType type) {
  return cp_add(&first_flag, 1) < 4 ? CUDA_ERROR_OPERATING_SYSTEM : import(handle, shared, type);
}
static CUresult (*copy_to_device)(CUdeviceptr, const void *, size_t, CUstream);
static CUresult copy_later(CUdeviceptr to, const void *from, size_t bytes, CUstream stream) {
  return cp_add(&second_flag, 1) < 4 ? CUDA_ERROR_OUT_OF_MEMORY : copy_to_device(to, from, bytes, stream);
}

static void comes_back_later(void) {
  CUdeviceptr a = begin_with_residue();
  ask(CP_YIELD_NOW);
  released(CP_BY_FORCE);
  cut_to(LANE, 0, 0);
  import = cp_real.cuMemImportFromShareableHandle;
  cp_real.cuMemImportFromShareableHandle = import_later;
  copy_to_device = cp_real.cuMemcpyHtoDAsync_v2;
  cp_real.cuMemcpyHtoDAsync_v2 = copy_later;
  close(add_memory(LANE, 0, PIECE));
  give();
  spin_on(NULL, 1);
  OK(cuCtxSynchronize());
  CHECK_THAT(holds(a, CP_MIB, 1) && cp_load(&first_flag) >= 4 && cp_load(&second_flag) == 4);
}

/* ---- at exit ------------------------------------------------------------------------------------------------------------- */

/* Called after the helper thread has been stopped: what was registered first comes last. */
static void submit_at_exit(void) {
  close(add_memory(LANE, 0, PIECE));
  give();
  spin_on(NULL, 1);
  CHECK_THAT(cp_extents_mapped(LANE) == PIECE && seat_of(0)->turns == 2);
}
static void at_exit(void) {
  int status;
  pid_t pid = fork();
  CHECK_THAT(pid >= 0);
  if (pid == 0) {
    alarm(20);
    CHECK_THAT(!atexit(submit_at_exit));
    begin_with_residue();
    ask(CP_YIELD_NOW);
    released(CP_BY_FORCE);
    cp_store(&seat_of(0)->lane, 5); /* another lane */
    send_packet(daemon_fd, (struct cp_packet){.type = CP_LANE, .a = 5}, -1);
    cp_notify(seat_of(0));
    while (cp_load(&cp.lane) != 5) syscall(SYS_nanosleep, &(struct timespec){.tv_nsec = 100000}, NULL);
    exit(0);
  }
  CHECK_THAT(waitpid(pid, &status, 0) == pid && status == 0);
}

int main(int argc, char **argv) {
  static const struct test_case cases[] = {CASE(while_it_is_released), CASE(own_stream), CASE(destroyed_stream),
                                          CASE(many_destroyed), CASE(comes_back_later), CASE(at_exit)};
  return run_cases(cases, sizeof cases / sizeof *cases, argc, argv);
}
