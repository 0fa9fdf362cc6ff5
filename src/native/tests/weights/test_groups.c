/* Weights that come group by group: every touch sees them, whoever copies, stops, dies or takes over meanwhile. */
#include "weights/groups_state.h"
#include "tests/check.h"
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

/* The copies that a process makes: it may die in the middle of one, or pause before it. */
static _Atomic int copies, through_mappings, dies_in = -1, pauses_in = -1; /* of several threads */
static int pause_pipe[2], paused_pipe[2];
static long watched_write(int fd, const void *from, size_t bytes, uint64_t at);
static long watched_copy(char *to, const char *from, size_t bytes, uint64_t at);
static void *watched_mmap(void *at, size_t bytes, int access, int kind, int fd, off_t offset);
#define cp_write_at watched_write
#define cp_copy_at watched_copy
#define mmap watched_mmap
#include "weights/groups.c"
#include "weights/host.c"
#undef cp_write_at
#undef cp_copy_at
#undef mmap
#include "weights/trap.c"
#include "base/section.c"

#define GROUPS 7u
#define READERS 3
#define HEADER CP_PAGE

uint64_t cp_syscalls;
static bool turn_lost;
static uint32_t turns_asked_for;
bool cp_service_lost(void) { return cp_load(&turn_lost); }
void cp_service_take(void) { cp_add(&turns_asked_for, 1); }
static uint64_t bounds[GROUPS + 1];
static uint8_t key[CP_GROUPS_KEY] = {1, 2, 3}, other_key[CP_GROUPS_KEY] = {9};
static int image, refused_kind; /* of mappings of the image */

static bool begins_group(uint64_t at) {
  for (uint32_t k = 0; k < GROUPS; k++)
    if (bounds[k] == at) return true;
  return false;
}

/* True: half of the bytes, and then it dies. */
static bool watched(uint64_t at) {
  char byte;
  if (!begins_group(at)) return false;
  if (copies == pauses_in) {
    CHECK_THAT(write(paused_pipe[1], "p", 1) == 1);
    CHECK_THAT(read(pause_pipe[0], &byte, 1) == 1);
  }
  return copies++ == dies_in;
}

/* No more than a page at once, as the kernel may do. */
static long watched_write(int fd, const void *from, size_t bytes, uint64_t at) {
  if (watched(at)) {
    cp_write_at(fd, from, bytes / 2, at);
    raise(SIGKILL);
  }
  return cp_write_at(fd, from, CP_PAGE, at);
}

static long watched_copy(char *to, const char *from, size_t bytes, uint64_t at) {
  if (watched(at)) {
    cp_copy_at(to, from, bytes / 2, at);
    raise(SIGKILL);
  }
  through_mappings++;
  return cp_copy_at(to, from, bytes, at);
}

static void *watched_mmap(void *at, size_t bytes, int access, int kind, int fd, off_t offset) {
  if (fd != image || kind != refused_kind) return mmap(at, bytes, access, kind, fd, offset);
  errno = EPERM;
  return MAP_FAILED;
}

static bool expect_fault;

static void on_fault(int sig, siginfo_t *info, void *context) {
  (void)sig, (void)context;
  if (cp_groups_trap(info->si_addr)) return;
  _exit(expect_fault ? 42 : 1);
}

int cp_signals_start(void) {
  struct sigaction a = {.sa_flags = SA_SIGINFO | SA_NODEFER};
  a.sa_sigaction = on_fault;
  return sigaction(SIGSEGV, &a, NULL);
}

static uint64_t value(uint64_t offset) { return offset * 6364136223846793005ull + 1; }

static int file_of(uint64_t bytes) {
  int fd = memfd_create("test", MFD_CLOEXEC);
  CHECK_THAT(fd >= 0 && !ftruncate(fd, (off_t)bytes));
  return fd;
}

static void spoil(int device) {
  for (uint64_t at = HEADER; at < bounds[GROUPS]; at += 8) CHECK_THAT(pwrite(device, &at, 8, (off_t)at) == 8);
}

/* Groups of different sizes; one is empty. */
static void make_image(void) {
  bounds[0] = HEADER;
  for (uint32_t k = 0; k < GROUPS; k++) bounds[k + 1] = bounds[k] + (k == 3 ? 0 : (k * 5 + 1) * CP_PAGE);
  image = file_of(bounds[GROUPS]);
  for (uint64_t at = HEADER; at < bounds[GROUPS]; at += 8) {
    uint64_t v = value(at);
    CHECK_THAT(pwrite(image, &v, 8, (off_t)at) == 8);
  }
}

static struct cp_groups *opened_on(int device) {
  struct cp_groups *g = cp_groups_open(device, image, bounds, GROUPS, key);
  CHECK_THAT(g);
  return g;
}

static void check_all(const struct cp_groups *g) {
  const char *at = cp_groups_address(g);
  for (uint64_t k = HEADER; k < bounds[GROUPS]; k += 8) CHECK_THAT(*(volatile const uint64_t *)(at + k) == value(k));
}

/* In a process of its own; returns its status. */
static int in_child(void (*body)(int device), int device) {
  int status;
  fflush(NULL);
  pid_t pid = fork();
  CHECK_THAT(pid >= 0);
  if (pid == 0) {
    body(device);
    _exit(0);
  }
  CHECK_THAT(waitpid(pid, &status, 0) == pid);
  return status;
}

static void load_and_check(int device) {
  struct cp_groups *g = opened_on(device);
  CHECK_THAT(cp_groups_load(g) == 0);
  check_all(g);
  CHECK_THAT(cp_groups_wait(g, GROUPS) == 0 && cp_groups_there(g) == GROUPS);
  cp_groups_close(g);
}

static void touches_wait_for_their_group(void) {
  int device = file_of(bounds[GROUPS]);
  load_and_check(device);
  close(device);
}

/* Shared, so that a pin makes no copies of its pages; an older kernel refuses that for a sealed file. */
static void an_image_is_mapped_as_the_kernel_lets_it(int kind) {
  int device = file_of(bounds[GROUPS]);
  refused_kind = kind;
  load_and_check(device);
  refused_kind = 0;
  close(device);
}

static void what_is_there_is_not_copied_again(void) {
  int device = file_of(bounds[GROUPS]);
  load_and_check(device);
  copies = 0;
  load_and_check(device);
  CHECK_THAT(copies == 0);
  close(device);
}

static void a_touch_that_waits_goes_on_with_the_copy(void) {
  int device = file_of(bounds[GROUPS]);
  struct cp_groups *g = opened_on(device);
  copies = 0;
  pauses_in = 2;
  CHECK_THAT(pipe(pause_pipe) == 0 && pipe(paused_pipe) == 0);
  CHECK_THAT(cp_groups_load(g) == 0);
  char byte;
  CHECK_THAT(read(paused_pipe[0], &byte, 1) == 1);
  CHECK_THAT(cp_groups_there(g) == 2 && cp_groups_wait(g, 2) == 0);
  CHECK_THAT(cp_groups_drop(g) == EBUSY);
  CHECK_THAT(write(pause_pipe[1], "g", 1) == 1);
  check_all(g);
  pauses_in = -1;
  cp_groups_close(g);
  close(device);
}

static void *release_when_stopped(void *groups) {
  struct cp_groups *g = groups;
  while (!cp_load(&g->stop)) usleep(100);
  CHECK_THAT(write(pause_pipe[1], "g", 1) == 1);
  return NULL;
}

static void a_stopped_load_goes_on_where_it_was(void) {
  int device = file_of(bounds[GROUPS]);
  struct cp_groups *g = opened_on(device);
  pthread_t helper;
  char byte;
  copies = 0;
  pauses_in = 2;
  CHECK_THAT(pipe(pause_pipe) == 0 && pipe(paused_pipe) == 0);
  CHECK_THAT(cp_groups_load(g) == 0 && read(paused_pipe[0], &byte, 1) == 1);
  CHECK_THAT(!pthread_create(&helper, NULL, release_when_stopped, g));
  cp_groups_stop(g);
  pthread_join(helper, NULL);
  pauses_in = -1;
  CHECK_THAT(cp_groups_there(g) == 3 && copies == 3);
  CHECK_THAT(cp_groups_wait(g, GROUPS) == ECANCELED);
  CHECK_THAT(cp_groups_load(g) == 0);
  check_all(g);
  CHECK_THAT(cp_groups_wait(g, GROUPS) == 0 && copies == GROUPS - 1); /* one is empty */
  cp_groups_close(g);
  close(device);
}

static void dropped_weights_come_again(void) {
  int device = file_of(bounds[GROUPS]);
  struct cp_groups *g = opened_on(device);
  for (int round = 0; round < 3; round++) {
    through_mappings = 0;
    CHECK_THAT(cp_groups_load(g) == 0);
    check_all(g);
    CHECK_THAT(cp_groups_wait(g, GROUPS) == 0 && through_mappings == (round ? (int)GROUPS - 1 : 0));
    cp_groups_stop(g);
    CHECK_THAT(cp_groups_load(g) == 0 && cp_groups_wait(g, GROUPS) == 0); /* the touches were faster than the thread */
    cp_groups_stop(g);
    CHECK_THAT(cp_groups_drop(g) == 0 && cp_groups_there(g) == 0);
    spoil(device);
  }
  cp_groups_close(g);
  close(device);
}

/* As the daemon does: pages are given back, the header's too. */
static void punched_weights_come_again(void) {
  int device = file_of(bounds[GROUPS]);
  struct cp_groups *g = opened_on(device), *other = opened_on(device);
  through_mappings = 0;
  for (int round = 0; round < 3; round++) {
    CHECK_THAT(cp_groups_load(g) == 0);
    check_all(g);
    CHECK_THAT(cp_groups_wait(g, GROUPS) == 0);
    CHECK_THAT(through_mappings == 0); /* fresh pages each time */
    copies = 0;
    CHECK_THAT(cp_groups_load(other) == 0);
    check_all(other);
    CHECK_THAT(copies == 0);
    cp_groups_stop(g), cp_groups_stop(other);
    CHECK_THAT(!fallocate(device, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)bounds[GROUPS]));
  }
  cp_groups_close(g);
  cp_groups_close(other);
  close(device);
}

/* Dropped weights come back somewhere else, at the same addresses; what is in their old memory is others'. */
static void moved_weights_come_again(bool cleared) {
  uint64_t id;
  int device = file_of(bounds[GROUPS]), next = file_of(bounds[GROUPS] + CP_PAGE);
  struct cp_groups *g = opened_on(device);
  const void *at = cp_groups_address(g);
  memcpy(&id, key, sizeof id);
  CHECK_THAT(cp_groups_load(g) == 0);
  check_all(g);
  CHECK_THAT(cp_groups_wait(g, GROUPS) == 0);
  cp_groups_stop(g);
  struct cp_groups *other = cp_groups_open(next, image, bounds, GROUPS, other_key);
  CHECK_THAT(cp_groups_load(other) == 0 && cp_groups_wait(other, GROUPS) == 0);
  cp_groups_close(other);
  spoil(device);
  if (cleared) {
    cp_groups_dropped(id + 1); /* another's */
    cp_groups_clear();
    CHECK_THAT(cp_load(&g->open[0]));
    cp_groups_dropped(id);
    cp_groups_clear();
    CHECK_THAT(!cp_load(&g->open[0]) && !cp_load(&g->dropped));
  }
  CHECK_THAT(cp_groups_move(g, next) == 0 && cp_groups_there(g) == 0 && cp_groups_address(g) == at);
  spoil(next);
  for (int round = 0; round < 2; round++) {
    copies = 0;
    CHECK_THAT(cp_groups_load(g) == 0);
    check_all(g);
    CHECK_THAT(cp_groups_wait(g, GROUPS) == 0 && copies == (round ? 0 : (int)GROUPS - 1));
    CHECK_THAT(cp_groups_move(g, next) == 0 && cp_groups_there(g) == GROUPS); /* the same */
  }
  int small = file_of(bounds[GROUPS] - CP_PAGE);
  CHECK_THAT(cp_groups_move(g, small) == EINVAL);
  check_all(g);
  cp_groups_close(g);
  close(device), close(next), close(small);
}

/* Others have brought them there already: nothing is copied, and nothing of the old memory is seen. */
static void moved_to_where_they_are(void) {
  int device = file_of(bounds[GROUPS]), next = file_of(bounds[GROUPS]);
  struct cp_groups *g = opened_on(device);
  CHECK_THAT(cp_groups_load(g) == 0);
  check_all(g);
  cp_groups_stop(g);
  load_and_check(next);
  spoil(device);
  copies = 0;
  CHECK_THAT(cp_groups_move(g, next) == 0 && cp_groups_load(g) == 0);
  check_all(g);
  CHECK_THAT(copies == 0);
  CHECK_THAT(files_count == 2);
  cp_groups_close(g);
  CHECK_THAT(files_count == 0);
  close(device), close(next);
}

static void *read_all(void *groups) {
  check_all(groups);
  return NULL;
}

/* The turn is lost in the middle: what is there cannot be read, and may go, until the next turn has begun; then they may
 * be somewhere else. */
static void barred_weights_wait(bool dropped, bool moved) {
  int device = file_of(bounds[GROUPS]), next = file_of(bounds[GROUPS]);
  struct cp_groups *g = opened_on(device);
  uint64_t begin, id;
  pthread_t readers[READERS];
  memcpy(&id, key, sizeof id);
  CHECK_THAT(cp_groups_load(g) == 0);
  check_all(g);
  cp_groups_bar(id, true);
  uint64_t touches = cp_load(&g->touches) + READERS;
  for (int i = 0; i < READERS; i++) CHECK_THAT(!pthread_create(&readers[i], NULL, read_all, g));
  for (begin = cp_now_us(); cp_load(&g->touches) < touches; usleep(100)) CHECK_THAT(cp_now_us() < begin + 20000000);
  usleep(1000); /* long enough to see it go wrong, if it does */
  CHECK_THAT(cp_load(&g->touches) == touches);
  if (dropped)
    CHECK_THAT(!fallocate(device, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)bounds[GROUPS]));
  if (moved) {
    CHECK_THAT(cp_groups_moved(id + 1, next) && cp_groups_moved(id, next) && cp_groups_there(g) == 0);
    spoil(device);
  }
  cp_groups_bar(id + 1, false); /* another's */
  CHECK_THAT(cp_load(&g->barred));
  cp_groups_bar(id, false);
  for (int i = 0; i < READERS; i++) CHECK_THAT(!pthread_join(readers[i], NULL));
  CHECK_THAT(cp_groups_wait(g, GROUPS) == 0);
  cp_groups_close(g);
  close(device), close(next);
}

static void a_halted_load_goes_on_later(void) {
  int device = file_of(bounds[GROUPS]);
  struct cp_groups *g = opened_on(device);
  uint64_t id;
  memcpy(&id, key, sizeof id);
  CHECK_THAT(cp_groups_load(g) == 0);
  cp_groups_halt(id + 1); /* another's */
  CHECK_THAT(cp_load(&g->busy) != CP_GROUPS_IDLE);
  cp_groups_halt(id);
  CHECK_THAT(cp_load(&g->busy) == CP_GROUPS_IDLE);
  CHECK_THAT(cp_groups_load(g) == 0);
  check_all(g);
  cp_groups_close(g);
  close(device);
}

/* A touch of weights alone asks for the turn that was lost; until it has come nothing is brought. */
static void a_touch_asks_for_the_turn(void) {
  int device = file_of(bounds[GROUPS]);
  struct cp_groups *g = opened_on(device);
  uint64_t id;
  pthread_t reader;
  memcpy(&id, key, sizeof id);
  CHECK_THAT(cp_groups_load(g) == 0 && cp_groups_wait(g, GROUPS) == 0);
  cp_store(&turn_lost, true);
  cp_groups_bar(id, true);
  CHECK_THAT(cp_groups_load(g) == 0 && cp_load(&g->barred) && cp_load(&turns_asked_for) == 0);
  CHECK_THAT(!pthread_create(&reader, NULL, read_all, g));
  for (uint64_t begin = cp_now_us(); !cp_load(&turns_asked_for); usleep(100)) CHECK_THAT(cp_now_us() < begin + 20000000);
  cp_store(&turn_lost, false);
  cp_groups_bar(id, false);
  CHECK_THAT(!pthread_join(reader, NULL) && cp_groups_wait(g, GROUPS) == 0);
  cp_groups_close(g);
  close(device);
}

/* Killed in the middle of each copy: what looks as if it were there is, and the next process brings the rest. */
static void a_killed_process_leaves_nothing_half_done(bool fresh) {
  for (int k = 0; k < (int)GROUPS - 1; k++) {
    int device = file_of(bounds[GROUPS]);
    if (!fresh) spoil(device);
    copies = 0;
    dies_in = k;
    CHECK_THAT(WTERMSIG(in_child(load_and_check, device)) == SIGKILL);
    dies_in = -1;
    struct cp_groups *g = opened_on(device);
    uint32_t there = cp_groups_there(g);
    CHECK_THAT(there == (uint32_t)k + (k >= 3)); /* the empty one comes at once */
    CHECK_THAT(cp_groups_load(g) == 0);
    check_all(g);
    CHECK_THAT(cp_groups_wait(g, GROUPS) == 0 && copies == (int)GROUPS - 1 - k);
    cp_groups_close(g);
    close(device);
  }
}

/* The first pauses in a copy while the second waits for it; then it goes on, or dies. */
static void the_second_process_waits_or_takes_over(bool dies) {
  int device = file_of(bounds[GROUPS]);
  char byte;
  int status;
  CHECK_THAT(pipe(pause_pipe) == 0 && pipe(paused_pipe) == 0);
  copies = 0;
  pauses_in = 2;
  dies_in = dies ? 2 : -1;
  pid_t first = fork();
  if (first == 0) {
    load_and_check(device);
    _exit(0);
  }
  CHECK_THAT(read(paused_pipe[0], &byte, 1) == 1);
  pauses_in = -1;
  dies_in = -1;
  struct cp_groups *g = opened_on(device);
  CHECK_THAT(cp_groups_load(g) == 0 && cp_groups_there(g) == 2);
  CHECK_THAT(write(pause_pipe[1], "g", 1) == 1);
  check_all(g);
  CHECK_THAT(cp_groups_wait(g, GROUPS) == 0);
  CHECK_THAT(waitpid(first, &status, 0) == first);
  CHECK_THAT(dies ? WTERMSIG(status) == SIGKILL : status == 0);
  CHECK_THAT(dies ? copies == (int)GROUPS - 3 : copies == 0);
  cp_groups_close(g);
  close(device);
}

static void write_into(int device) {
  struct cp_groups *g = opened_on(device);
  expect_fault = true;
  CHECK_THAT(cp_groups_load(g) == 0);
  *(volatile char *)((uintptr_t)cp_groups_address(g) + HEADER) = 1;
}

static void nobody_writes_into_weights(void) {
  int device = file_of(bounds[GROUPS]);
  int status = in_child(write_into, device);
  CHECK_THAT(WIFEXITED(status) && WEXITSTATUS(status) == 42);
  close(device);
}

/* A thread may find its group opened by another one, once per load, and one memory may take another's addresses. */
static void memory_in_the_same_place_is_another(void) {
  for (int i = 0; i < 2; i++) {
    int device = file_of(bounds[GROUPS]);
    struct cp_groups *g = opened_on(device);
    const char *touched = (const char *)cp_groups_address(g) + HEADER;
    CHECK_THAT(cp_groups_load(g) == 0 && cp_groups_wait(g, GROUPS) == 0);
    cp_groups_admit(g, 0);
    CHECK_THAT(cp_groups_trap(touched));
    CHECK_THAT(!cp_groups_trap(touched));
    cp_groups_close(g);
    close(device);
  }
}

/* The memory has been others' meanwhile: what they have brought there is not taken for ours. */
static void what_others_have_brought_is_not_ours(void) {
  int device = file_of(bounds[GROUPS]);
  struct cp_groups *g = opened_on(device);
  CHECK_THAT(cp_groups_load(g) == 0);
  check_all(g);
  CHECK_THAT(cp_groups_wait(g, GROUPS) == 0);
  cp_groups_stop(g);
  struct cp_groups *other = cp_groups_open(device, image, bounds, GROUPS, other_key);
  CHECK_THAT(other && cp_groups_load(other) == 0 && cp_groups_wait(other, GROUPS) == 0);
  cp_groups_close(other);
  spoil(device);
  CHECK_THAT(cp_groups_load(g) == 0);
  check_all(g);
  cp_groups_close(g);
  close(device);
}

/* A turn came and went before the groups were opened, or moved: who has the memory now keeps it until the next one. */
static void without_a_turn_nothing_is_claimed(bool moved) {
  int first = file_of(bounds[GROUPS]), device = file_of(bounds[GROUPS]);
  uint64_t id;
  memcpy(&id, key, sizeof id);
  struct cp_groups *other = cp_groups_open(device, image, bounds, GROUPS, other_key);
  CHECK_THAT(other && cp_groups_load(other) == 0 && cp_groups_wait(other, GROUPS) == 0);
  struct cp_groups *g = moved ? opened_on(first) : NULL;
  cp_store(&turn_lost, true);
  if (moved)
    CHECK_THAT(cp_groups_move(g, device) == 0);
  else
    g = opened_on(device);
  CHECK_THAT(cp_groups_load(g) == 0 && is_ours(other) && cp_groups_there(other) == GROUPS);
  cp_store(&turn_lost, false);
  cp_groups_close(other);
  cp_groups_bar(id, false);
  check_all(g);
  CHECK_THAT(is_ours(g));
  cp_groups_close(g);
  close(first), close(device);
}

static void other_weights_are_forgotten(void) {
  int device = file_of(bounds[GROUPS]);
  load_and_check(device);
  struct cp_groups *g = cp_groups_open(device, image, bounds, GROUPS, other_key);
  CHECK_THAT(g && cp_groups_there(g) == 0);
  cp_groups_close(g);
  close(device);
}

static void *unlock_soon(void *fd) {
  usleep(5000);
  close(*(int *)fd);
  return NULL;
}

/* Two workers that get the memory at the same moment: one makes the header, the other one finds it. */
static void headers_that_others_make_are_waited_for(void) {
  int device = file_of(bounds[GROUPS]);
  struct cp_groups *g = opened_on(device);
  struct cp_groups_header *header = g->header;
  cp_store(&header->magic, 0);
  int fd = lock(g);
  pthread_t other;
  CHECK_THAT(fd >= 0 && !pthread_create(&other, NULL, unlock_soon, &fd));
  struct cp_groups *late = opened_on(device);
  CHECK_THAT(!pthread_join(other, NULL));
  cp_groups_close(late);
  cp_groups_close(g);
  close(device);
}

static void bad_bounds_are_refused(void) {
  int device = file_of(bounds[GROUPS]);
  uint64_t odd[2] = {HEADER, HEADER + 1}, none[2] = {0, HEADER}, back[3] = {HEADER, 3 * HEADER, 2 * HEADER};
  uint64_t large[2] = {HEADER, bounds[GROUPS] + CP_PAGE};
  CHECK_THAT(!cp_groups_open(device, image, odd, 1, key) && errno == EINVAL);
  CHECK_THAT(!cp_groups_open(device, image, none, 1, key) && errno == EINVAL);
  CHECK_THAT(!cp_groups_open(device, image, back, 2, key) && errno == EINVAL);
  CHECK_THAT(!cp_groups_open(device, image, large, 1, key) && errno == EINVAL);
  CHECK_THAT(!cp_groups_open(device, image, bounds, 0, key) && errno == EINVAL);
  CHECK_THAT(!cp_groups_open(-1, image, bounds, GROUPS, key) && errno == EINVAL);
  close(device);
}

int main(void) {
  make_image();
  touches_wait_for_their_group();
  an_image_is_mapped_as_the_kernel_lets_it(MAP_SHARED);
  an_image_is_mapped_as_the_kernel_lets_it(MAP_PRIVATE);
  what_is_there_is_not_copied_again();
  a_touch_that_waits_goes_on_with_the_copy();
  a_stopped_load_goes_on_where_it_was();
  dropped_weights_come_again();
  punched_weights_come_again();
  moved_weights_come_again(false);
  moved_weights_come_again(true);
  moved_to_where_they_are();
  barred_weights_wait(false, false);
  barred_weights_wait(true, false);
  barred_weights_wait(true, true);
  a_halted_load_goes_on_later();
  a_touch_asks_for_the_turn();
  a_killed_process_leaves_nothing_half_done(true);
  a_killed_process_leaves_nothing_half_done(false);
  the_second_process_waits_or_takes_over(false);
  the_second_process_waits_or_takes_over(true);
  nobody_writes_into_weights();
  memory_in_the_same_place_is_another();
  what_others_have_brought_is_not_ours();
  without_a_turn_nothing_is_claimed(false);
  without_a_turn_nothing_is_claimed(true);
  other_weights_are_forgotten();
  headers_that_others_make_are_waited_for();
  bad_bounds_are_refused();
  return 0;
}
