/* Turns taken at random moments from threads that launch, copy and capture, while the device checks that it never works for
 * a job without the turn.  Every value must come out as if nobody had been there.  Once with membarrier, once without. */
#include "tests/cuda/job.h"

#define WORKERS 4
#define ENOUGH SHORT_OR_LONG(60, 150) /* turns taken */
#define COUNT 512ul

static uint32_t finished, outside, taken, captures;
static uint64_t rounds[WORKERS];
static CUdeviceptr data[WORKERS];

/* On the device, in stream order. */
static void check_turn(void *unused) {
  (void)unused;
  if (!cp_load(&seat_of(0)->turn)) cp_store(&outside, 1);
}

static void mix_on(CUstream stream, size_t w, bool own) {
  uint64_t count = COUNT, seed = ++rounds[w];
  void *params[] = {&data[w], &count, &seed};
  if (own)
    OK(cuLaunchKernel_ptsz(mix, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
  else
    OK(cuLaunchKernel(mix, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
  OK(own ? cuLaunchHostFunc_ptsz(NULL, check_turn, NULL) : cuLaunchHostFunc(stream, check_turn, NULL));
}

static void capture_some(CUstream stream, size_t w) {
  CUgraph graph;
  CUgraphExec exec;
  OK(cuStreamBeginCapture_v2(stream, w % 2 ? CU_STREAM_CAPTURE_MODE_THREAD_LOCAL : CU_STREAM_CAPTURE_MODE_RELAXED));
  mix_on(stream, w, false);
  mix_on(stream, w, false);
  OK(cuStreamEndCapture(stream, &graph));
  OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
  OK(cuGraphLaunch(exec, stream));
  OK(cuStreamSynchronize(stream));
  OK(cuGraphExecDestroy(exec));
  OK(cuGraphDestroy(graph));
  cp_add(&captures, 1);
}

static void *worker(void *argument) {
  size_t w = (size_t)argument;
  static uint64_t out[WORKERS][COUNT];
  OK(cuCtxSetCurrent(context));
  CUstream stream = w == 0 ? NULL : new_stream(w == 1 ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING);
  bool own = w == 3;
  for (unsigned i = 0; cp_load(&taken) < ENOUGH; i++) {
    mix_on(stream, w, own);
    if (i % 7 == 0 && w == 0) OK(cuMemcpyDtoH_v2(out[w], data[w], sizeof out[w]));
    if (i % 5 == 0 && w == 1) OK(cuStreamSynchronize(stream));
    if (i % 11 == 0 && w == 2) capture_some(stream, w);
    if (i % 3 == 0 && w == 3) OK(cuStreamSynchronize_ptsz(NULL));
    if (i % 8 == 0) OK(cuStreamSynchronize(stream));
    if (w == 1) cp_step_end(0, 0);
  }
  cp_add(&finished, 1);
  return NULL;
}

static void *arbiter(void *unused) {
  (void)unused;
  uint64_t passed = 0;
  struct timeval patience = {.tv_usec = 700};
  CHECK_THAT(!setsockopt(daemon_fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience));
  while (cp_load(&finished) < WORKERS) {
    struct cp_packet p;
    ssize_t n = recv(daemon_fd, &p, sizeof p, 0);
    struct cp_seat *s = seat_of(0);
    if (cp_load(&s->passed_seq) != passed) {
      passed = cp_load(&s->passed_seq);
      cp_add(&taken, 1);
    }
    if (n > 0 && p.type == CP_WANT && !cp_load(&s->turn)) give();
    if (n < 0 && cp_load(&s->turn)) {
      unsigned how = next_random() % 4;
      if (how == 3)
        watch_it();
      else
        ask(how ? CP_YIELD_NOW : CP_YIELD_BOUNDARY);
    }
  }
  return NULL;
}

static void compute(uint64_t *value, uint64_t n) {
  for (uint64_t seed = 1; seed <= n; seed++)
    for (uint64_t i = 0; i < COUNT; i++) {
      uint64_t x = (value[i] ^ seed) * 0x9e3779b97f4a7c15u + i;
      value[i] = x ^ x >> 29;
    }
}

static void all_as_expected(void) {
  static uint64_t got[COUNT], expected[COUNT];
  for (size_t w = 0; w < WORKERS; w++) {
    memset(expected, 0, sizeof expected);
    compute(expected, rounds[w]);
    OK(cp_real.cuMemcpyDtoH_v2(got, data[w], sizeof got));
    CHECK_THAT(!memcmp(got, expected, sizeof got));
  }
}

/* Nothing but the gate: after it has been shut and nobody was in flight, nobody is inside. */
static uint32_t shut_for_sure, inside_anyway, stop;

static volatile char far_away[64 << 20];

/* Stores that miss all caches keep the one that says "in flight" waiting behind them. */
static void *go_through(void *unused) {
  for (uint64_t at = 1; !cp_load(&stop);) {
    uint64_t leave = 0;
    for (int i = 0; i < 12; i++) far_away[(at = at * 6364136223846793005u + 1) >> 38] = 1;
    struct cp_thread *t = cp_enter(&leave);
    for (int i = 0; i < 8; i++)
      if (cp_relaxed(&shut_for_sure)) cp_store(&inside_anyway, 1);
    cp_leave(t, leave);
  }
  return unused;
}

static void gate_holds(void) {
  unsigned shut = 0;
  pthread_t thread = start(go_through, NULL);
  for (unsigned i = 0; i < 200000 && shut < SHORT_OR_LONG(10000, 40000); i++) {
    bool in_flight;
    cp_shut_bit(CP_SHUT, true);
    cp_cuda_barrier();
    cp_cuda_calls(&in_flight);
    if (!in_flight) {
      shut++;
      cp_store(&shut_for_sure, 1);
      for (volatile int spin_ = 0; spin_ < 50; spin_++) continue;
      cp_store(&shut_for_sure, 0);
    }
    cp_shut_bit(CP_SHUT, false);
    for (volatile unsigned spin_ = 0; spin_ < i % 64; spin_++) continue;
  }
  cp_store(&stop, 1);
  pthread_join(thread, NULL);
  CHECK_THAT(!inside_anyway && shut > 1000);
}

static void run_with(bool fenced) {
  pthread_t threads[WORKERS];
  begin();
  cp_shut_bit(CP_FENCE, fenced);
  seat_of(0)->grace_us = 300;
  give();
  for (size_t w = 0; w < WORKERS; w++) {
    OK(cuMemAlloc_v2(&data[w], COUNT * 8));
    OK(cuMemsetD8_v2(data[w], 0, COUNT * 8));
  }
  OK(cuCtxSynchronize());
  gate_holds();
  pthread_t judge = start(arbiter, NULL);
  for (size_t w = 0; w < WORKERS; w++) threads[w] = start(worker, (void *)w);
  for (size_t w = 0; w < WORKERS; w++) pthread_join(threads[w], NULL);
  pthread_join(judge, NULL);
  OK(cuCtxSynchronize());
  all_as_expected();
  const struct cp_seat *s = seat_of(0);
  CHECK_THAT(!outside && captures > 0 && s->forced > 0 && s->turns > 10);
  printf("%s: %u turns, %u forced, %u early, %u captures, %lu rounds\n", fenced ? "fences" : "membarrier",
         (unsigned)s->turns, s->forced, (unsigned)s->early, captures, (unsigned long)rounds[0]);
}

int main(void) {
  int status;
  pid_t pid = fork();
  CHECK_THAT(pid >= 0);
  alarm(100);
  run_with(pid == 0);
  if (pid == 0) return 0;
  CHECK_THAT(waitpid(pid, &status, 0) == pid && status == 0);
  return 0;
}
