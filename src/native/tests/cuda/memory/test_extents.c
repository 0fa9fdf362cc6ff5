/* Extents: what the daemon sends is mapped in order, cut from the end, and changed for another lane's or device
 * buffer's. */
#include "tests/cuda/memory/memory_job.h"

static void mapped(uint32_t class_, uint64_t bytes) {
  cp_extents_take(false);
  CHECK_THAT(cp_extents_mapped(class_) == bytes);
}

static CUdeviceptr at(uint32_t class_, uint64_t offset) { return cp_extents_base(class_) + offset; }

/* One after another, in both ranges.  The job keeps no descriptor, but the stub driver has one for each mapping. */
static void several(void) {
  begin_granted(0, 0);
  uint32_t before = descriptors();
  close(add_memory(LANE, 0, PIECE));
  close(add_memory(LANE, PIECE, 2 * PIECE));
  close(add_memory(BANK, 0, 2 * PIECE));
  mapped(LANE, 3 * PIECE);
  mapped(BANK, 2 * PIECE);
  CHECK_THAT(descriptors() == before + 3);
  fill(at(LANE, 0), 3 * PIECE, 1);
  fill(at(BANK, 0), 2 * PIECE, 2);
  CHECK_THAT(holds(at(LANE, 0), 3 * PIECE, 1));
}

/* After a restart the daemon sends everything again, and perhaps what is no longer ours, or not yet. */
static void not_the_next(void) {
  begin_granted(0, 0);
  int fd = add_memory(LANE, 0, PIECE);
  mapped(LANE, PIECE);
  fill(at(LANE, 0), PIECE, 1);
  uint32_t before = descriptors();
  send_extent(LANE, 0, 0, PIECE, fd);
  send_extent(LANE, 7, PIECE, PIECE, fd);
  send_extent(LANE, 0, 2 * PIECE, PIECE, fd);
  send_extent(LANE, 0, PIECE, 2 * CP_GIB, fd);
  send_extent(LANE, 0, PIECE, PIECE, fd);
  mapped(LANE, 2 * PIECE);
  CHECK_THAT(descriptors() == before + 1 && holds(at(LANE, 0), PIECE, 1));
  CHECK_THAT(holds(at(LANE, PIECE), PIECE, 1)); /* the same memory once more */
}

static size_t device_free(void) {
  size_t free_bytes, total;
  OK(cp_real.cuMemGetInfo_v2(&free_bytes, &total));
  return free_bytes;
}

/* Whole extents from the end.  Memory that nobody holds any more is the device's again. */
static void cuts(void) {
  begin_granted(0, 0);
  size_t before = device_free();
  for (uint64_t i = 0; i < 4; i++) close(add_memory(LANE, i * PIECE, PIECE));
  mapped(LANE, 4 * PIECE);
  CHECK_THAT(device_free() == before - 4 * PIECE);
  fill(at(LANE, 0), PIECE, 5);
  cut_to(LANE, 0, 3 * PIECE); /* closed */
  CHECK_THAT(device_free() == before - 3 * PIECE);
  give();
  spin_on(NULL, 10);
  cut_to(LANE, 0, PIECE); /* open */
  CHECK_THAT(device_free() == before - PIECE && cp_extents_mapped(LANE) == PIECE && holds(at(LANE, 0), PIECE, 5));
  cut_to(LANE, 9, 0); /* not ours: answered all the same */
  cut_to(LANE, 0, PIECE);
  CHECK_THAT(cp_extents_mapped(LANE) == PIECE);
  close(add_memory(LANE, PIECE, 2 * PIECE));
  mapped(LANE, 3 * PIECE);
  cut_to(LANE, 0, 0);
  CHECK_THAT(device_free() == before);
}

/* Another lane: the seat's word first, then the packets; the job waits for them before its gate opens. */
static void *tell_lane(void *number) {
  cp_store(&first_flag, 1);
  syscall(SYS_nanosleep, &(struct timespec){.tv_nsec = 20000000}, NULL);
  send_packet(daemon_fd, (struct cp_packet){.type = CP_LANE, .a = *(uint64_t *)number}, -1);
  int fd = make_memory(2 * PIECE);
  send_extent(LANE, *(uint64_t *)number, 0, 2 * PIECE, fd);
  close(fd);
  return NULL;
}
static void other_lane(void) {
  uint64_t number = 5;
  begin_granted(0, 0);
  close(add_memory(LANE, 0, PIECE));
  close(add_memory(BANK, 0, PIECE));
  mapped(LANE, PIECE);
  cp_store(&seat_of(0)->lane, number);
  pthread_t thread = start(tell_lane, &number);
  give();
  spin_on(NULL, 10); /* needs the gate */
  pthread_join(thread, NULL);
  mapped(LANE, 2 * PIECE);
  CHECK_THAT(cp.lane == 5 && cp_extents_mapped(BANK) == PIECE);
  ask(CP_YIELD_NOW);
  released(CP_BY_FORCE);
  cp_store(&seat_of(0)->bank, 8);
  send_packet(daemon_fd, (struct cp_packet){.type = CP_BANK, .a = 8}, -1);
  cp_notify(seat_of(0));
  cut_to(BANK, 8, 0);
  CHECK_THAT(cp.buffer == 8 && cp_extents_mapped(BANK) == 0 && cp_extents_mapped(LANE) == 2 * PIECE);
}

/* ---- a daemon that takes memory away which work of the present turn uses ----------------------------------------- */

static uint32_t go;

/* The device has work before it that uses the first piece of both. */
static void begin_at_work(void) {
  begin_granted(0, 0);
  for (uint32_t class_ = 0; class_ < 2; class_++) {
    for (uint64_t i = 0; i < 2; i++) close(add_memory(class_, i * PIECE, PIECE));
    set_limit(class_, 2 * PIECE);
  }
  cp.p_cap = cp.e_cap = 2 * PIECE; /* as if it had grown */
  give();
  CUdeviceptr used[] = {segment(PIECE), 0};
  cp_begin_iterations();
  used[1] = segment(PIECE);
  hold_on(NULL, &go);
  for (uint64_t i = 0, count = PIECE / 8; i < 2; i++)
    OK(cuLaunchKernel(mix, 1, 1, 1, 1, 1, 1, 0, NULL, (void *[]){&used[i], &count, &i}, NULL));
}

static void send_plainly(struct cp_packet p) {
  send_packet(daemon_fd, p, -1);
  cp_extents_take(false);
}

/* Nothing has gone before the turn ends, whose work comes out well. */
static void stays_until_the_end(uint32_t class_) {
  CHECK_THAT(cp_extents_mapped(class_) >= PIECE);
  cp_store(&go, 1);
  OK(cuCtxSynchronize());
  ask(CP_YIELD_NOW);
  released(CP_BY_FORCE);
}

static void cut_in_the_middle_of_a_turn(void) {
  begin_at_work();
  cut_to(LANE, cp.lane, PIECE); /* what nothing uses: at once */
  CHECK_THAT(cp_extents_mapped(LANE) == PIECE);
  for (uint32_t class_ = 0; class_ < 2; class_++)
    send_plainly((struct cp_packet){.type = CP_CUT, .a = class_ ? cp.lane : cp.buffer, .b = class_});
  stays_until_the_end(BANK);
  CHECK_THAT(packet(CP_CUT_DONE).b == BANK && packet(CP_CUT_DONE).b == LANE);
  CHECK_THAT(!cp_extents_mapped(BANK) && !cp_extents_mapped(LANE));
}

static void moved_in_the_middle_of_a_turn(void) {
  begin_at_work();
  send_plainly((struct cp_packet){.type = CP_LANE, .a = 5});
  send_plainly((struct cp_packet){.type = CP_BANK, .a = 6});
  stays_until_the_end(LANE);
  cut_to(BANK, 6, 0); /* read after both */
  CHECK_THAT(cp.lane == 5 && cp.buffer == 6 && !cp_extents_mapped(BANK) && !cp_extents_mapped(LANE));
}

/* ---- attaching and ending ---------------------------------------------------------------------------------------- */

static void make_channel(int pair[2]) {
  struct timeval patience = {20, 0};
  whole = 0;
  make_seat_table();
  CHECK_THAT(!socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair));
  CHECK_THAT(!setsockopt(pair[1], SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience));
  daemon_fd = pair[1];
}

/* Attached before the program initialises the driver: descriptors wait, and can be cut.  A child keeps none of them. */
static void before_the_driver(void) {
  int pair[2], status, fds[3];
  make_channel(pair);
  for (uint32_t i = 0; i < 3; i++) fds[i] = memfd_create("not looked at yet", 0);
  attach_to(pair, 0);
  uint32_t before = descriptors();
  for (uint32_t i = 0; i < 3; i++) send_extent(LANE, 0, i * PIECE, PIECE, fds[i]);
  cut_to(LANE, 0, 2 * PIECE);
  CHECK_THAT(descriptors() == before + 2 && cp_extents_mapped(LANE) == 0);
  pid_t pid = fork();
  if (pid == 0) _exit(descriptors() + 1 == before ? 0 : 1); /* nor the channel */
  CHECK_THAT(waitpid(pid, &status, 0) == pid && status == 0);
  cut_to(LANE, 0, 0);
  CHECK_THAT(descriptors() == before);
  use_device();
  close(add_memory(LANE, 0, PIECE));
  mapped(LANE, PIECE);
}

/* What was sent to a process that has ended is nothing to the next one of this job. */
static void left_by_another(void) {
  int pair[2];
  make_channel(pair);
  use_device();
  int fd = make_memory(PIECE);
  send_extent(LANE, 0, 0, PIECE, fd);
  send_packet(daemon_fd, (struct cp_packet){.type = CP_CUT, .b = LANE}, -1);
  uint32_t before = descriptors();
  attach_to(pair, 0);
  mapped(LANE, 0);
  CHECK_THAT(descriptors() == before);
  send_extent(LANE, 0, 0, PIECE, fd);
  mapped(LANE, PIECE);
}

/* The daemon goes without having sent what it has written of: this job cannot go on. */
static void nothing_will_come(void) {
  int status;
  pid_t pid = fork();
  CHECK_THAT(pid >= 0);
  if (pid == 0) {
    begin_granted(0, 0);
    cp_store(&seat_of(0)->lane, 6);
    close(daemon_fd);
    give();
    fclose(stderr);
    spin_on(NULL, 10);
    _exit(0);
  }
  CHECK_THAT(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

int main(int argc, char **argv) {
  static const struct test_case cases[] = {CASE(several), CASE(not_the_next), CASE(cuts), CASE(other_lane),
                                          CASE(cut_in_the_middle_of_a_turn), CASE(moved_in_the_middle_of_a_turn),
                                          CASE(before_the_driver), CASE(left_by_another), CASE(nothing_will_come)};
  return run_cases(cases, sizeof cases / sizeof *cases, argc, argv);
}
