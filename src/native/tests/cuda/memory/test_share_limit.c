/* The share of a further process of a job: it asks before it takes memory from the driver, and gives back. */
#include "tests/cuda/job.h"

#define PIECE (8 * CP_MIB)
#define MUCH (64 * CP_MIB)

static uint64_t granted; /* as the daemon sees it */

static void begin_with_share(void) {
  whole = CP_WHOLE_SHARE;
  begin();
  give();
}

struct call {
  CUresult (*make)(void);
  CUresult result;
};

static void *make_call(void *argument) {
  struct call *c = argument;
  OK(cuCtxSetCurrent(context));
  c->result = c->make();
  return NULL;
}

/* The call waits for an answer, and this is it.  Returns how much was asked for. */
static uint64_t answered(struct call *c, uint32_t status) {
  struct cp_seat *s = seat_of(0);
  pthread_t thread = start(make_call, c);
  struct cp_packet p = packet(CP_GROW);
  CHECK_THAT(p.a == 2 && p.c == s->grow_seq && s->grow_class == 2 && s->grow_total == p.b && !p.d);
  if (status == CP_GROW_GRANTED) cp_store(&s->p_limit, granted = p.b);
  cp_store(&s->grow_status, status);
  cp_store(&s->grow_ack, (uint32_t)p.c);
  cp_futex_wake(&s->grow_ack);
  CHECK_THAT(!pthread_join(thread, NULL));
  return p.b;
}

static void nothing_was_asked(void) {
  struct cp_packet p;
  while (recv(daemon_fd, &p, sizeof p, MSG_DONTWAIT) == sizeof p) CHECK_THAT(p.type != CP_GROW && p.type != CP_SHRUNK);
}

static CUdeviceptr piece;
static CUresult allocate(void) { return cuMemAlloc_v2(&piece, PIECE); }

static void within_its_share(void) {
  begin_with_share();
  struct call c = {.make = allocate};
  CHECK_THAT(answered(&c, CP_GROW_GRANTED) == PIECE && c.result == CUDA_SUCCESS && seat_of(0)->p_live == PIECE);
  OK(cuMemFree_v2(piece));
  OK(allocate()); /* it has it already */
  nothing_was_asked();
  CHECK_THAT(answered(&c, CP_GROW_GRANTED) == 2 * PIECE && c.result == CUDA_SUCCESS && seat_of(0)->p_live == 2 * PIECE);
}

static void refused(void) {
  begin_with_share();
  struct call c = {.make = allocate};
  CHECK_THAT(answered(&c, CP_GROW_DENIED) == PIECE && c.result == CUDA_ERROR_OUT_OF_MEMORY && !seat_of(0)->p_live);
  CHECK_THAT(answered(&c, CP_GROW_GRANTED) == PIECE && c.result == CUDA_SUCCESS); /* no memory of it remains */
}

static CUresult impossible(void) { return cuMemAlloc_v2(&piece, SIZE_MAX - 1); }

static void more_than_there_can_be(void) {
  begin_with_share();
  CHECK_THAT(impossible() == CUDA_ERROR_OUT_OF_MEMORY);
  nothing_was_asked();
}

static CUresult pitched(void) { return cuMemAllocPitch_v2(&piece, &(size_t){0}, CP_MIB, 8, 4); }
static CUresult managed(void) { return cuMemAllocManaged(&piece, PIECE, CU_MEM_ATTACH_GLOBAL); }
static CUresult in_order(void) { return cuMemAllocAsync(&piece, PIECE, NULL); }
static CUresult array(void) {
  CUDA_ARRAY_DESCRIPTOR d = {.Width = CP_MIB, .Height = 2, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
  return cuArrayCreate_v2(&(CUarray){NULL}, &d);
}
static CUmemGenericAllocationHandle memory;
static CUresult create(size_t bytes) {
  CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
  return cuMemCreate(&memory, bytes, &prop, 0);
}
static CUresult handle(void) { return create(PIECE); }
static CUresult much_by_handle(void) { return create(MUCH); }

static void by_every_way(void) {
  static CUresult (*const ways[])(void) = {pitched, managed, in_order, array, handle};
  begin_with_share();
  for (uint32_t i = 0; i < sizeof ways / sizeof *ways; i++) {
    struct call c = {.make = ways[i]};
    CHECK_THAT(answered(&c, CP_GROW_DENIED) == PIECE && c.result == CUDA_ERROR_OUT_OF_MEMORY);
  }
}

static CUresult allocate_much(void) { return cuMemAlloc_v2(&piece, MUCH); }

static void gives_back(void) {
  begin_with_share();
  struct call much = {.make = allocate_much}, little = {.make = allocate};
  CHECK_THAT(answered(&much, CP_GROW_GRANTED) == MUCH && much.result == CUDA_SUCCESS);
  CUdeviceptr first = piece;
  CHECK_THAT(answered(&little, CP_GROW_GRANTED) == MUCH + PIECE && little.result == CUDA_SUCCESS);
  OK(cuMemFree_v2(first));
  struct cp_packet p = packet(CP_SHRUNK);
  CHECK_THAT(p.a == 2 && p.b == PIECE);
  /* It counts at once: the limit in the seat may come down at any time. */
  CHECK_THAT(seat_of(0)->p_limit == granted && answered(&little, CP_GROW_GRANTED) == 2 * PIECE);
}

static CUmemGenericAllocationHandle much_of_it(void) {
  begin_with_share();
  struct call much = {.make = much_by_handle};
  CHECK_THAT(answered(&much, CP_GROW_GRANTED) == MUCH && much.result == CUDA_SUCCESS);
  return memory;
}

static void gives_back_handles(void) {
  OK(cuMemRelease(much_of_it()));
  struct cp_packet p = packet(CP_SHRUNK);
  CHECK_THAT(p.a == 2 && !p.b);
}

/* Not before the driver has it. */
static void cannot_give_back(void) {
  CHECK_THAT(!setenv("EMULATOR_FAIL", "cuMemRelease=1", 1));
  CHECK_THAT(cuMemRelease(much_of_it()) == CUDA_ERROR_INVALID_VALUE);
  nothing_was_asked();
}

/* It had the job's seat, with memory by grant, and never used it. */
static void after_it_had_the_seat(void) {
  whole = CP_WHOLE_NO;
  begin();
  struct cp_seat *s = seat_of(0);
  cp_store(&s->whole, CP_WHOLE_SHARE);
  struct call c = {.make = allocate};
  CHECK_THAT(answered(&c, CP_GROW_DENIED) == PIECE && c.result == CUDA_ERROR_OUT_OF_MEMORY);
  CHECK_THAT(answered(&c, CP_GROW_GRANTED) == PIECE && c.result == CUDA_SUCCESS && s->p_live == PIECE && !s->fixed);
}

/* Two at once: what one has been promised is not the other's. */
static void at_once(void) {
  begin_with_share();
  struct cp_seat *s = seat_of(0);
  struct call calls[2] = {{.make = allocate}, {.make = allocate}};
  pthread_t threads[2] = {start(make_call, &calls[0]), start(make_call, &calls[1])};
  for (uint64_t limit = 0; limit < 2 * PIECE;) {
    struct cp_packet p = packet(CP_GROW);
    CHECK_THAT(p.b > limit && p.b <= 2 * PIECE);
    cp_store(&s->p_limit, limit = p.b);
    cp_store(&s->grow_status, CP_GROW_GRANTED);
    cp_store(&s->grow_ack, (uint32_t)p.c);
    cp_futex_wake(&s->grow_ack);
  }
  for (uint32_t i = 0; i < 2; i++) CHECK_THAT(!pthread_join(threads[i], NULL) && calls[i].result == CUDA_SUCCESS);
  CHECK_THAT(s->p_live == 2 * PIECE);
}

int main(int argc, char **argv) {
  static const struct test_case cases[] = {
      CASE(within_its_share), CASE(refused),            CASE(more_than_there_can_be), CASE(by_every_way),
      CASE(gives_back),       CASE(gives_back_handles), CASE(cannot_give_back),       CASE(after_it_had_the_seat),
      CASE(at_once)};
  return run_cases(cases, sizeof cases / sizeof *cases, argc, argv);
}
