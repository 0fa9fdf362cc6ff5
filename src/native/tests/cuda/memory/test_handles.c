/* Memory that the program makes itself comes by grant, moves out when the daemon asks, and is the same when it is back. */
#include "tests/cuda/memory/memory_job.h"

#include "cuda/memory/handles.h"

#define HANDLE CUmemGenericAllocationHandle

/* ---- the daemon's part: no device buffer for what the program makes itself ------------------------------------------------ */

static struct {
  uint64_t made, most, more; /* of the device buffer; what a limit may be; granted beyond what is asked for */
  uint32_t grown, shrunk, denied, offloaded, errors;
} told;

static void answer_request(const struct cp_packet *p) {
  bool fits = p->b <= told.most;
  uint64_t limit = p->b + told.more;
  for (; fits && told.made + seat_of(0)->handles < limit; told.made += PIECE) close(add_memory(BANK, told.made, PIECE));
  if (fits) set_limit(BANK, limit);
  cp_add(fits ? &told.grown : &told.denied, 1);
  answer(p, fits ? CP_GROW_GRANTED : CP_GROW_DENIED);
}

static void *serve(void *unused) {
  struct cp_packet p;
  while (recv(daemon_fd, &p, sizeof p, 0) == sizeof p) {
    if (p.type == CP_GROW) answer_request(&p);
    if (p.type == CP_SHRUNK) set_limit(BANK, p.b), cp_add(&told.shrunk, 1);
    if (p.type == CP_OFFLOADED) cp_store(&told.errors, (uint32_t)p.a), cp_add(&told.offloaded, 1);
  }
  return unused;
}

static void begin_served(uint64_t most) {
  begin_granted(0, 0);
  told.most = most;
  start(serve, NULL);
  give();
  spin_on(NULL, 1);
}

static uint64_t device_used(void) {
  size_t free_bytes, total;
  OK(cp_real.cuMemGetInfo_v2(&free_bytes, &total));
  return total - free_bytes;
}

static bool becomes(const uint32_t *word, uint32_t value) {
  for (uint64_t end = cp_now_us() + 10000000; cp_now_us() < end; usleep(200))
    if (cp_load(word) == value) return true;
  return false;
}

static void lose_turn(void) {
  ask(CP_YIELD_NOW);
  CHECK_THAT(becomes(&seat_of(0)->turn, 0));
}

/* Returns what the job has answered. */
static uint32_t asked_to_leave(void) {
  uint32_t before = cp_load(&told.offloaded);
  cp_store(&seat_of(0)->offload, CP_OFFLOAD_ASKED);
  cp_notify(seat_of(0));
  CHECK_THAT(becomes(&told.offloaded, before + 1));
  cp_store(&seat_of(0)->offload, CP_OFFLOAD_NO);
  return cp_load(&told.errors);
}

static void move_out(void) {
  lose_turn();
  CHECK_THAT(asked_to_leave() == 0 && seat_of(0)->made == 0);
}

static void come_back(void) {
  give();
  spin_on(NULL, 1);
  OK(cuCtxSynchronize());
}

/* ---- the program's -------------------------------------------------------------------------------------------------------- */

static CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};

static HANDLE created(size_t bytes) {
  HANDLE handle;
  OK(cuMemCreate(&handle, bytes, &prop, 0));
  return handle;
}

static CUdeviceptr reserved(size_t bytes) {
  CUdeviceptr at;
  OK(cuMemAddressReserve(&at, bytes, 0, 0, 0));
  return at;
}

static void map_at(CUdeviceptr at, size_t bytes, HANDLE handle, CUmemAccess_flags flags) {
  CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, flags};
  OK(cuMemMap(at, bytes, 0, handle, 0));
  OK(cuMemSetAccess(at, bytes, &access, 1));
}

static CUdeviceptr mapped(size_t bytes, HANDLE handle) {
  CUdeviceptr at = reserved(bytes);
  map_at(at, bytes, handle, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  return at;
}

static unsigned long long access_of(CUdeviceptr at) {
  unsigned long long flags;
  CUmemLocation location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  OK(cuMemGetAccess(&flags, &location, at));
  return flags;
}

/* ---- cases ------------------------------------------------------------------------------------------------------------------ */

static void comes_by_grant(void) {
  size_t free_bytes, total;
  begin_served(400 * CP_MIB);
  HANDLE a = created(300 * CP_MIB);
  struct cp_seat *s = seat_of(0);
  CHECK_THAT(told.grown == 1 && told.made == 0 && s->p_limit == 300 * CP_MIB && s->handles == s->p_limit);
  CHECK_THAT(s->fixed == 0 && s->traits == CP_TRAIT_DEVICE && s->p_used == 0);
  CHECK_THAT(s->p_live == 300 * CP_MIB && s->p_peak == 300 * CP_MIB && s->made == 300 * CP_MIB);
  HANDLE b;
  CHECK_THAT(cuMemCreate(&b, 200 * CP_MIB, &prop, 0) == CUDA_ERROR_OUT_OF_MEMORY && told.denied == 1);
  CHECK_THAT(s->handles == 300 * CP_MIB && s->p_live == s->handles);
  CUdeviceptr c = segment(5 * CP_MIB); /* beside it, from the device buffer */
  fill(c, 5 * CP_MIB, 1);
  CHECK_THAT(s->p_limit == 306 * CP_MIB && told.made == 8 * CP_MIB && s->p_live == 305 * CP_MIB);
  OK(cuMemGetInfo_v2(&free_bytes, &total));
  CHECK_THAT(free_bytes == 0 || total - free_bytes == 305 * CP_MIB);
  OK(cuMemRelease(a));
  CHECK_THAT(becomes(&told.shrunk, 1) && s->p_limit == 6 * CP_MIB && s->handles == 0 && s->made == 0);
  CHECK_THAT(cuMemRelease(a) == CUDA_ERROR_INVALID_VALUE && holds(c, 5 * CP_MIB, 1));
}

/* What lies idle in the device buffer is not given twice. */
static void gives_back_idle_memory_first(void) {
  begin_served(64 * CP_MIB);
  CUdeviceptr a = segment(12 * CP_MIB), b = segment(44 * CP_MIB);
  OK(cuMemFree_v2(b));
  created(40 * CP_MIB);
  struct cp_seat *s = seat_of(0);
  CHECK_THAT(told.shrunk == 1 && s->p_limit == 52 * CP_MIB && s->handles == 40 * CP_MIB && s->p_used == 12 * CP_MIB);
  OK(cuMemFree_v2(a));
}

/* And comes back for the device buffer where that needs it. */
static void what_is_granted_beyond_serves_the_next(void) {
  struct cp_seat *s;
  begin_served(CP_GIB);
  told.more = 4 * CP_MIB;
  s = seat_of(0);
  for (int i = 0; i < 3; i++) created(2 * CP_MIB);
  CHECK_THAT(told.grown == 1 && s->handles == 6 * CP_MIB && s->made == 6 * CP_MIB && told.made == 0);
  created(2 * CP_MIB);
  CHECK_THAT(told.grown == 2 && s->handles == 12 * CP_MIB && s->p_live == 8 * CP_MIB);
  segment(2 * CP_MIB);
  CHECK_THAT(told.shrunk == 1 && told.grown == 3 && s->handles == 8 * CP_MIB && s->p_limit == 14 * CP_MIB);
}

/* Mapped once or twice, released or not, read-only, and one that is mapped nowhere. */
static void moves_and_returns(void) {
  begin_served(CP_GIB);
  HANDLE twice = created(4 * CP_MIB), nowhere = created(2 * CP_MIB), released_ = created(6 * CP_MIB), only = created(2 * CP_MIB);
  CUdeviceptr a = mapped(4 * CP_MIB, twice), b = mapped(4 * CP_MIB, twice), c = mapped(6 * CP_MIB, released_);
  CUdeviceptr d = mapped(2 * CP_MIB, nowhere), e = mapped(2 * CP_MIB, only), g = segment(3 * CP_MIB);
  OK(cuMemRelease(released_));
  fill(a, 4 * CP_MIB, 1), fill(c, 6 * CP_MIB, 2), fill(d, 2 * CP_MIB, 3), fill(e, 2 * CP_MIB, 4), fill(g, 3 * CP_MIB, 5);
  OK(cuMemUnmap(d, 2 * CP_MIB));
  CUmemAccessDesc read_only = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READ};
  OK(cuMemSetAccess(e, 2 * CP_MIB, &read_only, 1));
  uint64_t before = device_used();
  for (int round = 0; round < 3; round++) {
    move_out();
    CHECK_THAT(device_used() == before - 14 * CP_MIB);
    come_back();
    CHECK_THAT(device_used() == before && seat_of(0)->made == 14 * CP_MIB && access_of(e) == 1 && access_of(a) == 3);
    CHECK_THAT(holds(a, 4 * CP_MIB, 1) && holds(b, 4 * CP_MIB, 1) && holds(c, 6 * CP_MIB, 2) && holds(e, 2 * CP_MIB, 4));
    CHECK_THAT(holds(g, 3 * CP_MIB, 5));
  }
  *(uint64_t *)(uintptr_t)a = 77; /* still the same memory at both addresses */
  CHECK_THAT(*(uint64_t *)(uintptr_t)b == 77);
  map_at(d, 2 * CP_MIB, nowhere, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  CHECK_THAT(holds(d, 2 * CP_MIB, 3) && seat_of(0)->out_bytes == 42 * CP_MIB && seat_of(0)->in_bytes == 42 * CP_MIB);
}

/* A program gives its memory back and keeps the addresses: at work, and while the memory is away. */
static void sleeps(bool away) {
  begin_served(CP_GIB);
  HANDLE handle = created(32 * CP_MIB), kept = created(2 * CP_MIB);
  CUdeviceptr at = mapped(32 * CP_MIB, handle), other = mapped(2 * CP_MIB, kept);
  uint64_t before = device_used();
  fill(at, 32 * CP_MIB, 1), fill(other, 2 * CP_MIB, 9);
  if (away) move_out();
  OK(cuMemUnmap(at, 32 * CP_MIB));
  OK(cuMemRelease(handle));
  CHECK_THAT(cuMemUnmap(at, 32 * CP_MIB) != CUDA_SUCCESS && seat_of(0)->p_live == 2 * CP_MIB);
  if (away) give();
  if (!away) CHECK_THAT(device_used() == before - 32 * CP_MIB && becomes(&told.shrunk, 1));
  map_at(at, 32 * CP_MIB, created(32 * CP_MIB), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  fill(at, 32 * CP_MIB, 2);
  move_out();
  come_back();
  CHECK_THAT(holds(at, 32 * CP_MIB, 2) && holds(other, 2 * CP_MIB, 9) && device_used() == before);
}
static void sleeps_at_work(void) { sleeps(false); }
static void sleeps_while_away(void) { sleeps(true); }

/* A handle stays valid whatever lies behind it, and a released one does not come back as another. */
static void numbers_last(void) {
  HANDLE again;
  CUmemAllocationProp said;
  begin_served(CP_GIB);
  HANDLE old = created(2 * CP_MIB);
  OK(cuMemRelease(old));
  HANDLE handle = created(2 * CP_MIB);
  CUdeviceptr at = mapped(2 * CP_MIB, handle);
  CHECK_THAT(handle != old && cuMemMap(reserved(2 * CP_MIB), 2 * CP_MIB, 0, old, 0) != CUDA_SUCCESS);
  move_out();
  come_back();
  OK(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)at));
  OK(cuMemGetAllocationPropertiesFromHandle(&said, again));
  CHECK_THAT(again == handle && said.location.id == 0 && said.type == prop.type);
  OK(cuMemRelease(handle));
  OK(cuMemUnmap(at, 2 * CP_MIB));
  CHECK_THAT(seat_of(0)->made == 2 * CP_MIB && !(seat_of(0)->traits & CP_TRAIT_SHARED));
  OK(cuMemRelease(again));
  CHECK_THAT(seat_of(0)->made == 0);
}

/* What others have access to stays where it is. */
static void exported_memory_stays(void) {
  int fd;
  begin_served(CP_GIB);
  CUmemAllocationProp shared = prop;
  shared.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  HANDLE handle;
  OK(cuMemCreate(&handle, 2 * CP_MIB, &shared, 0));
  CUdeviceptr at = mapped(2 * CP_MIB, handle);
  fill(at, 2 * CP_MIB, 1);
  CHECK_THAT(!(seat_of(0)->traits & CP_TRAIT_SHARED));
  OK(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  CHECK_THAT(seat_of(0)->traits & CP_TRAIT_SHARED);
  lose_turn();
  CHECK_THAT(asked_to_leave() == EBUSY && seat_of(0)->made == 2 * CP_MIB);
  come_back();
  CHECK_THAT(holds(at, 2 * CP_MIB, 1));
}

static void *look(void *address) {
  CUdeviceptr base, at = (CUdeviceptr)(uintptr_t)address;
  size_t bytes;
  unsigned int kind;
  OK(cuCtxSetCurrent(context));
  OK(cuPointerGetAttribute(&kind, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at));
  CHECK_THAT(kind == CU_MEMORYTYPE_DEVICE);
  OK(cuMemGetAddressRange_v2(&base, &bytes, at + 5));
  CHECK_THAT(base == at && bytes == 2 * CP_MIB);
  cp_store(&first_flag, 1);
  return NULL;
}

static void questions_wait_for_the_turn(void) {
  begin_served(CP_GIB);
  CUdeviceptr at = mapped(2 * CP_MIB, created(2 * CP_MIB));
  move_out();
  pthread_t thread = start(look, (void *)(uintptr_t)at);
  CHECK_THAT(becomes(&seat_of(0)->want, CP_WANT_TURN) && !cp_load(&first_flag));
  give();
  CHECK_THAT(soon(&first_flag));
  pthread_join(thread, NULL);
}

/* The device has no room for a moment: the daemon has said that there will be. */
static void waits_for_the_driver(void) {
  begin_served(CP_GIB);
  CUdeviceptr at = mapped(4 * CP_MIB, created(4 * CP_MIB));
  fill(at, 4 * CP_MIB, 6);
  move_out();
  size_t free_bytes, total;
  HANDLE others;
  OK(cp_real.cuMemGetInfo_v2(&free_bytes, &total));
  OK(cp_real.cuMemCreate(&others, free_bytes / CP_PIECE * CP_PIECE, &prop, 0));
  pthread_t thread = start(launch_one, &first_flag);
  give();
  usleep(100000);
  CHECK_THAT(!cp_load(&first_flag));
  OK(cp_real.cuMemRelease(others));
  CHECK_THAT(soon(&first_flag) && holds(at, 4 * CP_MIB, 6));
  pthread_join(thread, NULL);
}

static void many(void) {
  enum { MANY = 200 };
  CUdeviceptr base;
  HANDLE handle[MANY];
  begin_served(CP_GIB);
  base = reserved(MANY * 2 * CP_MIB);
  for (uint64_t i = 0; i < MANY; i++) {
    uint64_t place = i * 77 % MANY;
    handle[place] = created(2 * CP_MIB);
    map_at(base + place * 2 * CP_MIB, 2 * CP_MIB, handle[place], CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    fill(base + place * 2 * CP_MIB, CP_MIB, place);
  }
  OK(cuMemUnmap(base, 50 * 2 * CP_MIB));
  for (int i = 0; i < 50; i += 2) OK(cuMemRelease(handle[i]));
  move_out();
  come_back();
  for (uint64_t i = 1; i < 50; i += 2)
    map_at(base + i * 2 * CP_MIB, 2 * CP_MIB, handle[i], CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  for (uint64_t i = 1; i < MANY; i += i < 49 ? 2 : 1) CHECK_THAT(holds(base + i * 2 * CP_MIB, CP_MIB, i));
  CHECK_THAT(seat_of(0)->made == (MANY - 25) * 2 * CP_MIB);
}

#define WORKERS 3u
#define ROUNDS 20u

static void work_with(CUdeviceptr at, size_t bytes, uint32_t value) {
  uint32_t found = 0;
  OK(cuMemsetD32_v2(at, value, bytes / 4));
  syscall(SYS_nanosleep, &(struct timespec){.tv_nsec = 3000000}, NULL);
  OK(cuMemcpyDtoH_v2(&found, at + bytes - 4, 4));
  CHECK_THAT(found == value);
}

static void *worker(void *number) {
  OK(cuCtxSetCurrent(context));
  for (uint32_t i = 0; i < ROUNDS; i++) {
    size_t bytes = (1 + i % 3) * 2 * CP_MIB;
    HANDLE handle = created(bytes);
    CUdeviceptr at = mapped(bytes, handle);
    if (i % 2) OK(cuMemRelease(handle));
    work_with(at, bytes, (uint32_t)(uintptr_t)number << 16 | i);
    OK(cuMemUnmap(at, bytes));
    if (i % 2 == 0) OK(cuMemRelease(handle));
    OK(cuMemAddressFree(at, bytes));
  }
  cp_add(&first_flag, 1);
  return NULL;
}

/* Threads make and give back while the memory of all moves, again and again. */
static void moves_under_way(void) {
  pthread_t threads[WORKERS];
  begin_served(CP_GIB);
  for (uintptr_t i = 0; i < WORKERS; i++) threads[i] = start(worker, (void *)(i + 1));
  for (int moves = 0; cp_load(&first_flag) < WORKERS; moves++) {
    lose_turn();
    CHECK_THAT(asked_to_leave() == 0 && seat_of(0)->made == 0);
    give();
    usleep(5000);
  }
  for (uint32_t i = 0; i < WORKERS; i++) pthread_join(threads[i], NULL);
  CHECK_THAT(seat_of(0)->made == 0 && seat_of(0)->p_live == 0 && seat_of(0)->in_bytes > 0);
}

int main(int argc, char **argv) {
  static const struct test_case cases[] = {CASE(comes_by_grant), CASE(gives_back_idle_memory_first), CASE(moves_and_returns),
                                          CASE(sleeps_at_work), CASE(sleeps_while_away), CASE(numbers_last),
                                          CASE(exported_memory_stays), CASE(questions_wait_for_the_turn),
                                          CASE(waits_for_the_driver), CASE(many),
                                          CASE(what_is_granted_beyond_serves_the_next), CASE(moves_under_way)};
  return run_cases(cases, sizeof cases / sizeof *cases, argc, argv);
}
