/* Weights on a device: they come group by group, streams wait for them, and they go when the daemon says so. */
#include "tests/cuda/memory/memory_job.h"

#include "cuda/memory/weights.h"
#include "weights/groups.h"

#include <fcntl.h>

#define GROUPS 6u
#define HEADER CP_PAGE
#define SIZE (8 * CP_MIB)

struct cp_demand {
  uint64_t weights, bytes, reload_us, compute_us, deadline_us;
};
int cp_service_place(const struct cp_demand *demand, int *file);
void cp_service_take(void);
int cp_service_ending(void);
void cp_service_release(void);
struct cp_groups *cp_groups_open_on_device(int header, int image, const uint64_t *bounds, uint32_t count,
                                           const uint8_t *key, uint64_t address);
int cp_groups_follow(struct cp_groups *g, uint32_t n, void *stream);
uint64_t cp_weights_address(uint64_t key);
unsigned long stub_pinned_bytes(void);

static uint64_t bounds[GROUPS + 1];
static const uint8_t key[CP_GROUPS_KEY] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
static uint64_t number; /* what the daemon calls them: the key's first bytes */
static int image, header;

static uint64_t value(uint64_t offset) { return offset * 6364136223846793005ull + 1; }

static int file_of(uint64_t bytes) {
  int fd = memfd_create("test", MFD_CLOEXEC);
  CHECK_THAT(fd >= 0 && !ftruncate(fd, (off_t)bytes));
  return fd;
}

/* The last but one is empty. */
static void make_image(void) {
  memcpy(&number, key, sizeof number);
  bounds[0] = HEADER;
  for (uint32_t k = 0; k < GROUPS; k++) bounds[k + 1] = bounds[k] + (k == GROUPS - 2 ? 0 : (k + 1) * 64 * CP_PAGE);
  image = file_of(SIZE);
  uint64_t *content = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, image, 0);
  CHECK_THAT(content != MAP_FAILED);
  for (uint64_t at = HEADER; at < bounds[GROUPS]; at += 8) content[at / 8] = value(at);
  munmap(content, SIZE);
}

/* ---- the daemon's part ------------------------------------------------------------------------------------------------- */

static uint64_t extent; /* its number */

static void send_file(uint64_t which, int fd) {
  send_packet(daemon_fd, (struct cp_packet){.type = CP_WEIGHTS, .a = number, .b = SIZE, .c = which, .d = extent}, fd);
}

static void send_memory(void) {
  int memory = make_memory(SIZE);
  extent++;
  send_file(1, memory);
  close(memory);
}

static void say_placed(uint32_t demand, uint32_t placed) {
  struct cp_seat *s = seat_of(0);
  cp_store(&s->placed, placed);
  cp_store(&s->placed_seq, demand);
  cp_futex_wake(&s->placed_seq);
  cp_notify(s);
}

static bool new_header, new_memory, with_turn;

static void *daemon_places(void *unused) {
  uint64_t demand = packet(CP_WANT).a;
  if (new_header) send_file(0, header);
  if (new_memory) send_memory();
  say_placed((uint32_t)demand, CP_PLACED_YES);
  if (with_turn) give();
  return unused;
}

/* As the daemon drops weights: nobody uses them. */
static void drop(void) {
  char nothing[HEADER] = {0};
  CHECK_THAT(pwrite(header, nothing, HEADER, 0) == HEADER);
  cut_to(2, number, 0);
  CHECK_THAT(!cp_weights_address(number));
}

/* ---- the worker's part --------------------------------------------------------------------------------------------------- */

static const struct cp_demand *demand(void) {
  static struct cp_demand d;
  d = (struct cp_demand){number, SIZE, 100, 200, 0};
  return &d;
}

/* The first time with everything; returns the header's descriptor, or -1. */
static int placed(bool memory_comes, bool turn_comes) {
  int file;
  new_header = !header, new_memory = memory_comes, with_turn = turn_comes;
  if (!header) header = file_of(SIZE);
  pthread_t thread = start(daemon_places, NULL);
  CHECK_THAT(cp_service_place(demand(), &file) == 0);
  pthread_join(thread, NULL);
  CHECK_THAT((file >= 0) == new_header && cp_weights_address(number));
  return file;
}

static struct cp_groups *opened(int file) {
  struct cp_groups *g = cp_groups_open_on_device(file, image, bounds, GROUPS, key, cp_weights_address(number));
  CHECK_THAT(g && cp_groups_address(g) == (void *)(uintptr_t)cp_weights_address(number));
  return g;
}

static void begin_service(void) {
  make_image();
  begin_granted(0, 0);
}

static void released_by_us(void) {
  CHECK_THAT(cp_service_ending() == 0); /* no memory, no list */
  cp_service_release();
  released(CP_BY_BOUNDARY);
  CHECK_THAT(cp.gate == CP_CLOSED && !seat_of(0)->weights);
}

/* What the device finds there, copied in stream order behind the groups that it needs. */
static void check(struct cp_groups *g, uint32_t n) {
  static char found[SIZE];
  CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
  memset(found, 0, sizeof found);
  CHECK_THAT(cp_groups_follow(g, n, stream) == 0);
  CUdeviceptr at = (CUdeviceptr)(uintptr_t)cp_groups_address(g);
  OK(cuMemcpyDtoHAsync_v2(found + HEADER, at + HEADER, bounds[n] - HEADER, stream));
  OK(cuStreamSynchronize(stream));
  OK(cuStreamDestroy_v2(stream));
  for (uint64_t k = HEADER; k < bounds[n]; k += 8) CHECK_THAT(*(uint64_t *)(found + k) == value(k));
}

static struct cp_groups *loaded(void) {
  struct cp_groups *g = opened(placed(true, true));
  CHECK_THAT(cp_groups_load(g) == 0);
  cp_service_take();
  return g;
}

/* ---- cases ------------------------------------------------------------------------------------------------------------- */

/* Copying does not need the turn, computing does; what is there is not copied again, dropped weights are. */
static void come_and_stay(void) {
  begin_service();
  int file = placed(true, false);
  struct cp_groups *g = opened(file);
  CHECK_THAT(cp_groups_load(g) == 0 && cp_groups_wait(g, GROUPS) == 0 && cp.gate == CP_CLOSED);
  CHECK_THAT(stub_pinned_bytes() == bounds[GROUPS]);
  give();
  cp_service_take();
  for (uint32_t n = 1; n <= GROUPS; n++) check(g, n);
  CUdeviceptr at = cp_weights_address(number);
  fill(at + HEADER, 8, 77); /* only to see it */
  released_by_us();
  CHECK_THAT(placed(false, true) == -1 && cp_weights_address(number) == at);
  CHECK_THAT(cp_groups_load(g) == 0 && cp_groups_there(g) == GROUPS);
  cp_service_take();
  CHECK_THAT(holds(at + HEADER, 8, 77));
  released_by_us();
  drop();
  CHECK_THAT(placed(true, true) == -1 && cp_weights_address(number) == at && cp_groups_there(g) == 0);
  CHECK_THAT(cp_groups_load(g) == 0);
  cp_service_take();
  check(g, GROUPS);
  released_by_us();
  cp_groups_stop(g);
  cp_groups_close(g);
  close(file);
}

/* Whoever follows finds them, and nobody waits for what nobody brings. */
static void from_the_last_to_the_first(void) {
  begin_service();
  struct cp_groups *g = loaded();
  for (uint32_t n = GROUPS; n; n--) check(g, n);
  cp_groups_stop(g);
  CHECK_THAT(cp_groups_there(g) == GROUPS);
  released_by_us();
  drop();
  CHECK_THAT(cp_groups_follow(g, 1, NULL) == ECANCELED); /* nobody brings them */
  cp_groups_close(g);
}

/* Work of a thread that does not say what it needs waits for everything; of one that does it does not. */
void cp_groups_guard(struct cp_groups *g);
void cp_groups_operation(int begins);
static int copying_elsewhere(void) {
  struct flock first = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};
  char path[32];
  snprintf(path, sizeof path, "/proc/self/fd/%d", header);
  int fd = open(path, O_RDWR);
  CHECK_THAT(fd >= 0 && !fcntl(fd, F_OFD_SETLK, &first));
  return fd;
}
static void guarded(void) {
  begin_service();
  struct cp_groups *g = opened(placed(true, true));
  int other = copying_elsewhere();
  CHECK_THAT(cp_groups_load(g) == 0);
  cp_service_take();
  cp_groups_guard(g);
  cp_groups_operation(1);
  spin_on(NULL, 10);
  OK(cuCtxSynchronize());
  cp_groups_operation(0);
  pthread_t thread = start(launch_one, &first_flag);
  syscall(SYS_nanosleep, &(struct timespec){.tv_nsec = 20000000}, NULL); /* so that what does not wait is seen */
  CHECK_THAT(!cp_load(&first_flag) && cp_groups_there(g) == 0);
  close(other);
  CHECK_THAT(soon(&first_flag) && cp_groups_there(g) == GROUPS);
  pthread_join(thread, NULL);
  cp_groups_guard(NULL);
  released_by_us();
  cp_groups_close(g);
}

/* The turn is lost in the middle, and the weights with it; what the program calls next finds all of them. */
static void *next_call(void *groups) {
  OK(cuCtxSetCurrent(context));
  check(groups, GROUPS);
  return NULL;
}
static void lost_and_found(void) {
  begin_service();
  struct cp_groups *g = loaded();
  check(g, GROUPS);
  ask(CP_YIELD_NOW);
  released(CP_BY_FORCE);
  drop();
  pthread_t thread = start(next_call, g);
  uint64_t again = packet(CP_WANT).a;
  CHECK_THAT(again == seat_of(0)->demand_seq && seat_of(0)->placed_seq != again);
  send_memory();
  say_placed((uint32_t)again, CP_PLACED_YES);
  give();
  pthread_join(thread, NULL);
  CHECK_THAT(cp_groups_there(g) == GROUPS);
  released_by_us();
  cp_groups_close(g);
}

/* A turn that is for an earlier demand is given back before anything is computed in it. */
static void turn_for_something_else(void) {
  begin_service();
  struct cp_groups *g = loaded();
  ask(CP_YIELD_NOW);
  released(CP_BY_FORCE);
  pthread_t thread = start(next_call, g);
  packet(CP_WANT);
  give();
  released(CP_BY_EARLY);
  uint64_t again = packet(CP_WANT).a;
  say_placed((uint32_t)again, CP_PLACED_YES);
  give();
  pthread_join(thread, NULL);
  released_by_us();
  cp_groups_close(g);
}

/* A turn that was never used, and one in which memory is live. */
static void ends_its_turn(void) {
  begin_service();
  pthread_t thread = start(grant, NULL);
  give();
  cp_service_release();
  CHECK_THAT(!seat_of(0)->turn);
  give();
  granting.most[LANE] = 4 * PIECE;
  cp_begin_iterations();
  CUdeviceptr at = segment(PIECE);
  fill(at, PIECE, 3);
  spin_on(NULL, 10);
  CHECK_THAT(cp_service_ending() == 1);
  cp_live_blocks((uint64_t[]){at}, (uint64_t[]){4096}, 1);
  cp_service_release();
  CHECK_THAT(!seat_of(0)->turn && seat_of(0)->residue == 4096);
  shutdown(daemon_fd, SHUT_RDWR);
  pthread_join(thread, NULL);
}

/* A turn comes and goes before the process has even looked at the memory. */
static void lost_before_they_are_opened(void) {
  begin_service();
  int file = placed(true, true);
  ask(CP_YIELD_NOW);
  released(CP_BY_FORCE);
  uint64_t again = packet(CP_WANT).a;
  struct cp_groups *g = opened(file);
  CHECK_THAT(cp_groups_load(g) == 0 && cp_groups_wait(g, GROUPS) == 0);
  say_placed((uint32_t)again, CP_PLACED_YES);
  give();
  cp_service_take();
  check(g, GROUPS);
  released_by_us();
  cp_groups_close(g);
}

/* A daemon that was started again does not know what it has sent.  A copy may be under way. */
static void sent_once_more(void) {
  begin_service();
  int file = placed(true, false), fd = make_memory(SIZE);
  struct cp_groups *g = opened(file);
  uint32_t before = descriptors();
  CHECK_THAT(cp_groups_load(g) == 0);
  send_file(1, fd); /* of the same number, so it is not looked at */
  send_file(0, header);
  cp_extents_take(false);
  CHECK_THAT(cp_groups_wait(g, GROUPS) == 0);
  cp_groups_stop(g);
  CHECK_THAT(cp_weights_address(number) && descriptors() == before + 1);
  give();
  cp_service_take();
  check(g, GROUPS);
  released_by_us();
  CHECK_THAT(cp_groups_there(g) == GROUPS);
  cp_groups_close(g);
  close(file), close(fd);
}

/* Models come and go: those that have nothing here make room in the table. */
static void more_models_than_there_is_room_for(void) {
  begin_service();
  int file = placed(true, false);
  close(file);
  CUdeviceptr at = cp_weights_address(number);
  for (uint64_t k = 1; k <= 600; k++) {
    int fd = make_memory(2 * CP_MIB);
    struct cp_packet p = {.type = CP_WEIGHTS, .a = number + k, .b = 2 * CP_MIB, .c = 1, .d = k};
    send_packet(daemon_fd, p, fd);
    close(fd);
    cp_extents_take(false);
    CHECK_THAT(cp_weights_map(number + k));
    cut_to(2, number + k, 0);
  }
  CHECK_THAT(cp_weights_address(number) == at && !cp_weights_address(number + 600));
}

/* Nothing can be mapped: an error, and the process lives. */
static void memory_is_cut_while_it_is_due(void) {
  begin_service();
  int file = placed(true, false);
  close(file);
  drop();
  send_memory();
  cut_to(2, number, 0);
  CHECK_THAT(!cp_weights_map(number) && !cp_weights_address(number));
  cut_to(2, number + 1, 0); /* unknown: answered all the same */
}

/* A device that registers nothing read-only, or a driver that cannot pin so much. */
static void come_unpinned(void) {
  CHECK_THAT(!setenv("EMULATOR_FAIL", "cuMemHostRegister_v2=801", 1));
  begin_service();
  struct cp_groups *g = loaded();
  CHECK_THAT(stub_pinned_bytes() == 0);
  check(g, GROUPS);
  released_by_us();
  cp_groups_close(g);
}

/* A daemon that breaks its order: weights that the present turn is for stay until it ends. */
static void cut_while_they_are_computed_with(void) {
  static uint32_t go;
  uint64_t words = SIZE / 8, seed = 1;
  begin_service();
  struct cp_groups *g = loaded();
  CHECK_THAT(cp_groups_wait(g, GROUPS) == 0);
  CUdeviceptr at = cp_weights_address(number);
  hold_on(NULL, &go);
  OK(cuLaunchKernel(mix, 1, 1, 1, 1, 1, 1, 0, NULL, (void *[]){&at, &words, &seed}, NULL));
  send_packet(daemon_fd, (struct cp_packet){.type = CP_CUT, .a = number, .b = CP_CUT_WEIGHTS}, -1);
  cp_extents_take(false);
  CHECK_THAT(cp_weights_address(number) == at);
  cp_store(&go, 1);
  OK(cuCtxSynchronize());
  released_by_us();
  CHECK_THAT(packet(CP_CUT_DONE).a == number && !cp_weights_address(number));
}

int main(int argc, char **argv) {
  static const struct test_case cases[] = {CASE(come_and_stay), CASE(from_the_last_to_the_first), CASE(guarded), CASE(lost_and_found),
                                          CASE(turn_for_something_else), CASE(lost_before_they_are_opened), CASE(sent_once_more), CASE(ends_its_turn),
                                          CASE(memory_is_cut_while_it_is_due), CASE(come_unpinned),
                                          CASE(cut_while_they_are_computed_with),
                                          CASE(more_models_than_there_is_room_for)};
  return run_cases(cases, sizeof cases / sizeof *cases, argc, argv);
}
