/* What a program has left behind: a request for memory whose answer it did not wait for, memory of a context that it has
 * reset. */
#include "tests/cuda/memory/memory_job.h"

static struct cp_packet request(uint32_t class_, uint64_t total) {
  struct cp_packet p = packet(CP_GROW);
  CHECK_THAT(p.a == class_ && p.b == total);
  return p;
}

static void grant_to(const struct cp_packet *request_, uint64_t bytes) {
  close(add_memory((uint32_t)request_->a, 0, bytes));
  set_limit((uint32_t)request_->a, bytes);
  answer(request_, CP_GROW_GRANTED);
}

/* ---- requests ---------------------------------------------------------------------------------------------------------- */

/* As the handler of SIGINT does. */
static void interrupt(void) {
  cp_add(&cp.interrupts, 1);
  cp_futex_wake(&seat_of(0)->grow_ack);
}

static void *refused(void *bytes) {
  CUdeviceptr at;
  OK(cuCtxSetCurrent(context));
  CHECK_THAT(cp_segment_alloc(&at, *(size_t *)bytes, true) == CUDA_ERROR_OUT_OF_MEMORY);
  cp_store(&first_flag, 1);
  return NULL;
}

/* Asks for so much and does not wait for the answer.  The interruption may come before the thread sleeps: again, then. */
static struct cp_packet leave_request(uint32_t class_, size_t bytes) {
  cp_store(&first_flag, 0);
  pthread_t thread = start(refused, &bytes);
  struct cp_packet p = request(class_, bytes);
  while (!cp_load(&first_flag)) {
    interrupt();
    syscall(SYS_nanosleep, &(struct timespec){.tv_nsec = 200000}, NULL);
  }
  pthread_join(thread, NULL);
  return p;
}

static bool nothing_asked(void) {
  struct cp_packet p;
  while (recv(daemon_fd, &p, sizeof p, MSG_DONTWAIT) == sizeof p)
    if (p.type == CP_GROW) return false;
  return true;
}

/* What was granted after all serves the next request. */
static void granted_after_all(void) {
  begin_granted(0, 0);
  struct cp_packet p = leave_request(BANK, 8 * CP_MIB);
  CHECK_THAT(cp.p_cap == 0);
  grant_to(&p, 8 * CP_MIB);
  CUdeviceptr a = segment(8 * CP_MIB);
  CHECK_THAT(nothing_asked() && cp.p_cap == 8 * CP_MIB);
  give();
  OK(cuMemsetD8_v2(a, 7, 8 * CP_MIB));
}

/* Nobody wants it any more: it goes back, but not before it is there. */
static void given_back(void) {
  begin_granted(0, 0);
  struct cp_packet p = leave_request(BANK, 64 * CP_MIB);
  CUdeviceptr none;
  CHECK_THAT(cp_segment_alloc(&none, 4 * CP_GIB, true) == CUDA_ERROR_OUT_OF_MEMORY);
  grant_to(&p, 64 * CP_MIB);
  cp_notify(seat_of(0));
  p = packet(CP_SHRUNK);
  CHECK_THAT(p.a == BANK && p.b == 0 && cp.p_cap == 0);
}

static void *ask_again(void *at) {
  OK(cuCtxSetCurrent(context));
  OK(cp_segment_alloc(at, 2 * CP_MIB, false));
  return NULL;
}

/* The same class: the new request takes the place of the old one. */
static void asked_again(void) {
  CUdeviceptr at;
  begin_granted(0, 0);
  leave_request(BANK, 8 * CP_MIB);
  pthread_t thread = start(ask_again, &at);
  struct cp_packet p = request(BANK, 2 * CP_MIB);
  grant_to(&p, 2 * CP_MIB);
  pthread_join(thread, NULL);
  CHECK_THAT(cp.p_cap == 2 * CP_MIB);
}

/* Another class: the answer to the old one must not be taken for one to the new one. */
static void other_class(void) {
  CUdeviceptr at;
  begin_granted(0, 0);
  cp_begin_iterations();
  cp_pool_scope(1); /* one try is all there is */
  struct cp_packet lane = leave_request(LANE, 8 * CP_MIB);
  cp_pool_scope(-1);
  pthread_t thread = start(ask_again, &at);
  grant_to(&lane, 8 * CP_MIB);
  struct cp_packet p = request(BANK, 2 * CP_MIB);
  CHECK_THAT(cp_load(&cp.e_cap) == 8 * CP_MIB);
  grant_to(&p, 2 * CP_MIB);
  pthread_join(thread, NULL);
  CHECK_THAT(at == cp_extents_base(BANK) && segment(8 * CP_MIB) == cp_extents_base(LANE) && nothing_asked());
}

/* The daemon hears that nobody waits: its refusal lets another class be asked for. */
static void withdrawn(void) {
  CUdeviceptr at;
  begin_granted(0, 0);
  cp_begin_iterations();
  cp_pool_scope(1);
  struct cp_packet lane = leave_request(LANE, 8 * CP_MIB), p = packet(CP_WITHDRAWN);
  cp_pool_scope(-1);
  CHECK_THAT(p.a == LANE && p.c == lane.c && seat_of(0)->grow_class == (LANE | 512));
  pthread_t thread = start(ask_again, &at);
  answer(&lane, CP_GROW_DENIED);
  p = request(BANK, 2 * CP_MIB);
  CHECK_THAT(p.c == lane.c + 1 && seat_of(0)->grow_class == BANK && cp_load(&cp.e_cap) == 0);
  grant_to(&p, 2 * CP_MIB);
  pthread_join(thread, NULL);
  CHECK_THAT(at == cp_extents_base(BANK));
}

/* The answer to what was withdrawn is none to what is asked for instead. */
static void withdrawn_and_asked_again(void) {
  CUdeviceptr at;
  begin_granted(0, 0);
  struct cp_packet first = leave_request(BANK, 8 * CP_MIB), p = packet(CP_WITHDRAWN);
  CHECK_THAT(p.a == BANK && p.c == first.c);
  pthread_t thread = start(ask_again, &at);
  p = request(BANK, 2 * CP_MIB);
  answer(&first, CP_GROW_DENIED);
  CHECK_THAT(nothing_asked() && cp_load(&cp.p_cap) == 0);
  grant_to(&p, 2 * CP_MIB);
  pthread_join(thread, NULL);
  CHECK_THAT(cp.p_cap == 2 * CP_MIB);
}

/* ---- resets ------------------------------------------------------------------------------------------------------------ */

static CUdeviceptr begin_with_segments(uint64_t persistent) {
  begin_granted(persistent, CP_GIB);
  start(grant, NULL);
  give();
  segment(2 * CP_MIB);
  cp_begin_iterations();
  CUdeviceptr work = segment(4 * CP_MIB);
  fill(work, 4 * CP_MIB, 1);
  return work;
}

static void nothing_is_left(void) {
  const struct cp_seat *s = seat_of(0);
  CHECK_THAT(s->p_live == 0 && s->p_used == 0 && s->e_live == 0 && cp_segments_live() == 0);
}

/* All of it is gone, and can be had again. */
static void reset(void) {
  CUdeviceptr work = begin_with_segments(CP_GIB);
  OK(cuDevicePrimaryCtxReset_v2(0));
  nothing_is_left();
  use_device();
  CHECK_THAT(cuMemFree_v2(work) == CUDA_ERROR_INVALID_VALUE);
  CHECK_THAT(segment(4 * CP_MIB) == work);
  OK(cuDevicePrimaryCtxReset(0));
  nothing_is_left();
}

/* In a context that is not reset it stays. */
static void others_stay(void) {
  CUcontext second;
  CUdeviceptr work = begin_with_segments(CP_GIB);
  OK(cuCtxCreate_v2(&second, 0, 0));
  OK(cuDevicePrimaryCtxReset_v2(0));
  CHECK_THAT(seat_of(0)->e_live == 4 * CP_MIB);
  OK(cuMemFree_v2(work));
  OK(cuDevicePrimaryCtxRetain(&context, 0));
  OK(cuDevicePrimaryCtxRelease_v2(0));
  CHECK_THAT(seat_of(0)->p_live == 2 * CP_MIB);
}

/* Residue that was saved in the meantime is nobody's any more, wherever it is. */
static void with_residue(uint64_t persistent) {
  CUdeviceptr work = begin_with_segments(persistent);
  spin_on(NULL, 1);
  ask(CP_YIELD_NOW); /* who grants memory here reads all packets, so the seat says when it has let go */
  while (cp_load(&seat_of(0)->turn)) syscall(SYS_nanosleep, &(struct timespec){.tv_nsec = 200000}, NULL);
  CHECK_THAT(seat_of(0)->residue == 4 * CP_MIB);
  OK(cuDevicePrimaryCtxReset_v2(0));
  nothing_is_left();
  use_device();
  CHECK_THAT(segment(4 * CP_MIB) == work);
  give();
  spin_on(NULL, 1);
  OK(cuCtxSynchronize());
  CHECK_THAT(seat_of(0)->turns == 2);
}
static void residue_on_the_host(void) { with_residue(PIECE); }

int main(int argc, char **argv) {
  static const struct test_case cases[] = {CASE(granted_after_all), CASE(given_back), CASE(asked_again), CASE(other_class),
                                          CASE(withdrawn), CASE(withdrawn_and_asked_again),
                                          CASE(reset), CASE(others_stay), CASE(residue_on_the_host)};
  return run_cases(cases, sizeof cases / sizeof *cases, argc, argv);
}
