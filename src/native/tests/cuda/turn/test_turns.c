/* When a turn begins and ends. */
#include "tests/cuda/job.h"

/* Work waits for the turn; what is not work does not. */
static void waits_for_the_turn(void) {
  CUdeviceptr address;
  begin();
  OK(cuMemAlloc_v2(&address, CP_MIB));
  OK(cuCtxSynchronize());
  OK(cuMemFree_v2(address));
  pthread_t thread = start(launch_one, &first_flag);
  packet(CP_WANT);
  CHECK_THAT(seat_of(0)->want == CP_WANT_TURN && cp_load(&first_flag) == 0 && seat_of(0)->turns == 0);
  give();
  pthread_join(thread, NULL);
  OK(cuCtxSynchronize());
  CHECK_THAT(first_flag && seat_of(0)->turns == 1 && seat_of(0)->traps == 1 && seat_of(0)->want == CP_WANT_NO);
  CHECK_THAT(seat_of(0)->traits == CP_TRAIT_DEVICE);
}

/* A step that has been asked for the turn returns at once; the turn goes when the device has ended. */
static void boundary_drains(void) {
  CUstream stream;
  begin();
  give();
  stream = new_stream(CU_STREAM_NON_BLOCKING);
  static uint32_t go;
  hold_on(stream, &go);
  flag_on(stream, &first_flag);
  ask(CP_YIELD_BOUNDARY);
  end_long_step();
  CHECK_THAT(!cp_load(&first_flag));
  cp_store(&go, 1);
  pthread_t thread = start(launch_one, &second_flag); /* the iteration's tail waits for the next turn */
  released(CP_BY_BOUNDARY);
  CHECK_THAT(cp_load(&first_flag) == 1 && cp_load(&second_flag) == 0 && seat_of(0)->iterations == 1);
  give();
  pthread_join(thread, NULL);
  OK(cuCtxSynchronize());
  CHECK_THAT(second_flag == 1 && seat_of(0)->turns == 2);
}

/* Without a request a boundary changes nothing and makes no system call.  The doorbell of the grant may still be
 * answered by the helper thread during the first rounds. */
static void alone(void) {
  uint64_t before, rounds = 0;
  begin();
  give();
  spin_on(NULL, 1);
  do {
    before = cp_load(&cp_syscalls);
    for (int i = 0; i < 100; i++) {
      spin_on(NULL, 1);
      cp_step_end(0, i == 0);
    }
    CHECK_THAT(++rounds < 5);
  } while (cp_load(&cp_syscalls) != before);
  CHECK_THAT(seat_of(0)->turn == 1 && seat_of(0)->iterations == 100 * rounds);
}

static void forced_drains_all_streams(void) {
  begin();
  give();
  uint32_t flags[3] = {0};
  CUstream blocking = new_stream(CU_STREAM_DEFAULT), other = new_stream(CU_STREAM_NON_BLOCKING);
  uint64_t us = 60000;
  spin_on(other, us);
  flag_on(other, &flags[0]);
  spin_on(blocking, us);
  flag_on(blocking, &flags[1]);
  CUstream gone = new_stream(CU_STREAM_NON_BLOCKING);
  us = 120000;
  spin_on(gone, us);
  flag_on(gone, &flags[2]);
  OK(cuStreamDestroy_v2(gone)); /* its work goes on */
  ask(CP_YIELD_NOW);
  released(CP_BY_FORCE);
  for (int i = 0; i < 3; i++) CHECK_THAT(cp_load(&flags[i]) == 1);
  CHECK_THAT(seat_of(0)->forced == 1);
}

/* Another thread's default stream, which has no name here. */
static void *on_own_stream(void *flag) {
  uint64_t us = 100000;
  OK(cuCtxSetCurrent(context));
  OK(cuLaunchKernel_ptsz(spin, 1, 1, 1, 1, 1, 1, 0, NULL, (void *[]){&us}, NULL));
  OK(cuLaunchHostFunc_ptsz(NULL, set_flag, flag));
  cp_store(&second_flag, 1);
  while (!cp_load((uint32_t *)flag)) syscall(SYS_nanosleep, &(struct timespec){.tv_nsec = 1000000}, NULL);
  return NULL;
}
static void own_streams_are_drained(void) {
  begin();
  give();
  pthread_t thread = start(on_own_stream, &first_flag);
  CHECK_THAT(soon(&second_flag));
  ask(CP_YIELD_NOW);
  released(CP_BY_FORCE);
  CHECK_THAT(cp_load(&first_flag) == 1);
  pthread_join(thread, NULL);
}

/* A call that has come through the gate and has not yet submitted anything. */
static CUresult slow(CUdeviceptr to, unsigned char value, size_t count, CUstream stream) {
  (void)to, (void)value, (void)count, (void)stream;
  cp_store(&first_flag, 1);
  syscall(SYS_nanosleep, &(struct timespec){.tv_nsec = 100000000}, NULL);
  cp_store(&second_flag, 1);
  return CUDA_SUCCESS;
}
static void *call_slowly(void *unused) {
  OK(cuMemsetD8Async(0, 0, 0, NULL));
  return unused;
}
static void calls_in_flight_count(void) {
  begin();
  give();
  cp_real.cuMemsetD8Async = slow;
  pthread_t thread = start(call_slowly, NULL);
  CHECK_THAT(soon(&first_flag));
  ask(CP_YIELD_NOW);
  released(CP_BY_FORCE);
  CHECK_THAT(cp_load(&second_flag) == 1);
  pthread_join(thread, NULL);
}

/* A synchronous copy is in flight until its bytes are there. */
static void *copy_back(void *out) {
  static CUdeviceptr from;
  OK(cuCtxSetCurrent(context));
  OK(cuMemAlloc_v2(&from, 4096));
  OK(cuMemsetD8_v2(from, 7, 4096));
  spin_on(NULL, 100000);
  cp_store(&first_flag, 1);
  OK(cuMemcpyDtoH_v2(out, from, 4096));
  cp_store(&second_flag, 1);
  return NULL;
}
static void synchronous_copies_count(void) {
  static char bytes[4096];
  bool in_flight = false;
  begin();
  give();
  pthread_t thread = start(copy_back, bytes);
  CHECK_THAT(soon(&first_flag));
  while (!in_flight && !cp_load(&second_flag)) cp_cuda_calls(&in_flight);
  ask(CP_YIELD_NOW);
  released(CP_BY_FORCE);
  CHECK_THAT(bytes[0] == 7 && bytes[4095] == 7);
  pthread_join(thread, NULL);
}

/* Early: nothing submitted and nothing under way for the grace. */
static void early_release(void) {
  begin();
  seat_of(0)->grace_us = 20000;
  give();
  uint64_t at = cp_now_us();
  spin_on(NULL, 150000);
  flag_on(NULL, &first_flag);
  watch_it();
  released(CP_BY_EARLY);
  CHECK_THAT(cp_load(&first_flag) && cp_now_us() - at >= 150000 + 20000 && seat_of(0)->early == 1);
  CHECK_THAT(seat_of(0)->watch == 0);
  give(); /* a turn that nobody uses goes back, too; however often the doorbell rings, not before the grace is over */
  at = cp_now_us();
  watch_it();
  for (int i = 0; i < 8; i++) {
    syscall(SYS_nanosleep, &(struct timespec){.tv_nsec = 1000000}, NULL);
    cp_notify(seat_of(0));
  }
  released(CP_BY_EARLY);
  CHECK_THAT(cp_now_us() - at >= 20000);
}

static struct {
  uint32_t begun, stop;
  uint64_t at_us, gap_us; /* of the latest work; the longest time between two */
} busy;
static void *keep_busy(void *unused) {
  OK(cuCtxSetCurrent(context));
  busy.at_us = cp_now_us();
  while (!cp_load(&busy.stop)) {
    uint64_t now = cp_now_us(), gap = now - busy.at_us;
    if (gap > cp_load(&busy.gap_us)) cp_store(&busy.gap_us, gap);
    cp_store(&busy.at_us, now);
    spin_on(NULL, 100);
    OK(cuCtxSynchronize());
    cp_store(&busy.begun, 1);
  }
  return unused;
}

/* Not if that thread has had to wait for a processor as long as an idle one may stay. */
static bool is_idle(void) {
  uint64_t grace = seat_of(0)->grace_us, at = cp_load(&busy.at_us); /* before the gap, which is set before */
  return cp_load(&busy.gap_us) >= grace || cp_now_us() - at >= grace;
}

static void busy_is_not_idle(void) {
  begin();
  seat_of(0)->grace_us = SHORT_OR_LONG(100000, 300000);
  give();
  pthread_t thread = start(keep_busy, NULL);
  CHECK_THAT(soon(&busy.begun));
  watch_it();
  struct timeval patience = {.tv_sec = SHORT_OR_LONG(0, 1), .tv_usec = SHORT_OR_LONG(400000, 200000)}; /* four times that */
  CHECK_THAT(!setsockopt(daemon_fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience));
  struct cp_packet p;
  while (recv(daemon_fd, &p, sizeof p, 0) > 0) {
    if (p.type != CP_RELEASED) continue;
    CHECK_THAT(is_idle());
    cp_store(&busy.gap_us, 0);
    give();
    watch_it();
  }
  CHECK_THAT(seat_of(0)->turn == 1);
  cp_store(&busy.stop, 1);
  pthread_join(thread, NULL);
}

/* While somebody waits, an iteration's first call waits for the iteration before the last; a step never does. */
#define ITERATIONS 6
static uint32_t begun, go[ITERATIONS], done[ITERATIONS];

static void *let_go(void *unused) {
  for (uint32_t i = 2; i < ITERATIONS; i++) {
    while (cp_load(&begun) < i) syscall(SYS_nanosleep, &(struct timespec){.tv_nsec = 500000}, NULL);
    syscall(SYS_nanosleep, &(struct timespec){.tv_nsec = 20000000}, NULL); /* so that what does not wait is seen */
    cp_store(&go[i - 2], 1);
  }
  return unused;
}
static void run_ahead(void) {
  begin();
  give();
  spin_on(NULL, 1);
  watch_it();
  pthread_t thread = start(let_go, NULL);
  for (uint32_t i = 0; i < ITERATIONS; i++) {
    cp_store(&begun, i);
    spin_on(NULL, 1);
    if (i >= 2) CHECK_THAT(cp_load(&done[i - 2]) == 1 && cp_load(&done[i - 1]) == 0);
    hold_on(NULL, &go[i]);
    flag_on(NULL, &done[i]);
    cp_step_end(0, i == 0);
  }
  pthread_join(thread, NULL);
  CHECK_THAT(seat_of(0)->turn == 1 && seat_of(0)->iterations == ITERATIONS);
  cp_store(&go[ITERATIONS - 2], 1);
  cp_store(&go[ITERATIONS - 1], 1);
}

/* Beside a service: of calls that take 2 ms each, a device that may have 6 ms before it never has many. */
static uint32_t ended_calls;
static void one_more(void *unused) {
  (void)unused;
  cp_add(&ended_calls, 1);
}
static void little_before_it(void) {
  enum { CALLS = 200 };
  uint32_t most = 0;
  begin();
  give();
  spin_on(NULL, 1);
  cp_store(&seat_of(0)->ahead_us, 6000);
  cp_notify(seat_of(0));
  for (uint64_t end = cp_now_us() + 20000000; !(cp_load(&cp_shut) & CP_BOUND); sched_yield()) CHECK_THAT(cp_now_us() < end);
  for (uint32_t i = 0; i < CALLS; i++) {
    spin_on(NULL, 2000);
    OK(cp_real.cuLaunchHostFunc(NULL, one_more, NULL));
    uint32_t under_way = i + 1 - cp_load(&ended_calls);
    if (i > CALLS / 2 && under_way > most) most = under_way;
  }
  CHECK_THAT(most >= 1 && most <= 32); /* without a bound: all of them */
  cp_store(&seat_of(0)->ahead_us, 0);
  cp_notify(seat_of(0));
  for (uint64_t end = cp_now_us() + 20000000; cp_load(&cp_shut) & CP_BOUND; sched_yield()) CHECK_THAT(cp_now_us() < end);
  hold_on(NULL, &first_flag);
  for (uint32_t i = 0; i < 50; i++) spin_on(NULL, 10); /* with a bound each would wait for a second */
  cp_store(&first_flag, 1);
  ask(CP_YIELD_NOW);
  released(CP_BY_FORCE);
}

/* What has been submitted goes on meanwhile; the next call waits. */
static void paused_and_on_again(void) {
  begin();
  give();
  uint32_t held = 0, flag = 0;
  hold_on(NULL, &held);
  ask(CP_YIELD_PAUSE);
  CHECK_THAT(packet(CP_PAUSED).a == 1 && seat_of(0)->paused == 1 && seat_of(0)->turn == 1);
  pthread_t thread = start(launch_one, &flag);
  cp_store(&held, 1);
  syscall(SYS_nanosleep, &(struct timespec){.tv_nsec = 20000000}, NULL); /* long enough to see it go wrong, if it does */
  CHECK_THAT(!cp_load(&flag));
  ask(CP_YIELD_NO);
  pthread_join(thread, NULL);
  CHECK_THAT(soon(&flag) && seat_of(0)->paused == 0 && seat_of(0)->passed_seq == 0);
}

static void paused_and_made_to_let_go(void) {
  begin();
  give();
  uint32_t flag = 0;
  spin_on(NULL, 1000);
  ask(CP_YIELD_PAUSE);
  CHECK_THAT(packet(CP_PAUSED).a == 1);
  pthread_t thread = start(launch_one, &flag);
  ask(CP_YIELD_NOW);
  released(CP_BY_FORCE);
  CHECK_THAT(seat_of(0)->paused == 0 && !cp_load(&flag));
  give();
  pthread_join(thread, NULL);
  CHECK_THAT(soon(&flag));
}

int main(int argc, char **argv) {
  static const struct test_case cases[] = {CASE(waits_for_the_turn), CASE(boundary_drains), CASE(alone),
                                          CASE(forced_drains_all_streams), CASE(own_streams_are_drained),
                                          CASE(calls_in_flight_count), CASE(synchronous_copies_count),
                                          CASE(early_release), CASE(busy_is_not_idle), CASE(run_ahead), CASE(little_before_it),
                                          CASE(paused_and_on_again), CASE(paused_and_made_to_let_go)};
  return run_cases(cases, sizeof cases / sizeof *cases, argc, argv);
}
