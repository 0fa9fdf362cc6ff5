/* A service computes with weights only while it has its turn, and what it wants a turn for outlives the loss of one. */
#define WITH_SERVICE
#include "tests/job.h"

#include <pthread.h>

#define KEY 0x1122334455667788u
static uint32_t bars, loads, halts, drops, clears; /* of the groups */
static ino_t moved_to;
static bool ends_in_between; /* the turn, while the weights are called back */

void cp_groups_bar(uint64_t key, bool bar) {
  CHECK_THAT(key == KEY && (bar || !cp_service_lost()));
  cp_add(bar ? &bars : &loads, 1);
}

/* With the turn. */
void cp_groups_halt(uint64_t key) {
  CHECK_THAT(key == cp.seat->weights && cp_load(&cp.seat->turn));
  cp_add(&halts, 1);
}

void cp_groups_dropped(uint64_t key) {
  CHECK_THAT(key == KEY);
  cp_add(&drops, 1);
}

/* Never while it computes, or waits for what it will compute with. */
void cp_groups_clear(void) {
  CHECK_THAT(!cp.seat->weights);
  cp_add(&clears, 1);
}

bool cp_groups_any_dropped(void) { return cp_load(&drops); }

static ino_t inode(int file) {
  struct stat status;
  CHECK_THAT(!fstat(file, &status));
  return status.st_ino;
}

/* What they were written to may be others': as long as they are lost nobody begins to write. */
bool cp_groups_moved(uint64_t key, int device) {
  CHECK_THAT(key == KEY && cp_service_lost());
  moved_to = inode(device);
  if (ends_in_between) cp_turn_end(CP_BY_FORCE);
  ends_in_between = false;
  return true;
}

static const struct cp_demand demand = {KEY, 1 << 20, 100, 200, 300};
static uint64_t *cells; /* ephemeral */
static int weights_file;

static struct cp_packet any(void) {
  struct cp_packet p;
  CHECK_THAT(recv(daemon_fd, &p, sizeof p, 0) == sizeof p);
  return p;
}

static struct cp_packet next(uint32_t type) {
  struct cp_packet p = any();
  CHECK_THAT(p.type == type);
  return p;
}

/* They have been dropped. */
static void take_back_weights(void) {
  struct cp_packet p = {.type = CP_CUT, .a = KEY, .b = 2};
  CHECK_THAT(send(daemon_fd, &p, sizeof p, 0) == sizeof p);
  cp_notify(cp.seat);
}

static void send_weights(uint64_t key) {
  struct cp_packet p = {.type = CP_WEIGHTS, .a = key, .b = 1 << 20};
  char control[CMSG_SPACE(sizeof(int))] = {0};
  struct iovec v = {&p, sizeof p};
  struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
  struct cmsghdr *c = CMSG_FIRSTHDR(&m);
  *c = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
  memcpy(CMSG_DATA(c), &weights_file, sizeof weights_file);
  CHECK_THAT(sendmsg(daemon_fd, &m, 0) == sizeof p);
}

static void say_placed(uint32_t number, uint32_t placed) {
  cp_store(&cp.seat->placed, placed);
  cp_store(&cp.seat->placed_seq, number);
  cp_futex_wake(&cp.seat->placed_seq);
  cp_notify(cp.seat);
}

static void grant(void) {
  give();
  cp_futex_wake(&cp.seat->turn);
  cp_notify(cp.seat);
}

/* What the daemon does while the job places its weights; `file` comes with them. */
struct placing {
  uint32_t placed;
  bool file, turn;
};

static void *daemon_places(void *arg) {
  const struct placing *how = arg;
  struct cp_packet p = next(CP_WANT);
  const struct cp_seat *s = cp.seat;
  CHECK_THAT(p.a == s->demand_seq && s->weights == KEY && s->weights_bytes == 1 << 20 && s->want == CP_WANT_TURN);
  CHECK_THAT(s->reload_us == 100 && s->compute_us == 200 && s->deadline_us == 300);
  if (how->file) {
    send_weights(~KEY); /* of a demand that was given up */
    send_weights(KEY);
  }
  say_placed((uint32_t)p.a, how->placed);
  if (how->turn) grant();
  return NULL;
}

static int place(struct placing how, int *file) {
  pthread_t thread;
  CHECK_THAT(!pthread_create(&thread, NULL, daemon_places, &how));
  int result = cp_service_place(&demand, file);
  CHECK_THAT(!pthread_join(thread, NULL));
  return result;
}

static void computes_and_gives_back(void) {
  int file;
  CHECK_THAT(place((struct placing){CP_PLACED_YES, true, true}, &file) == 0);
  CHECK_THAT(inode(file) == inode(weights_file) && !close(file));
  cp_service_take();
  CHECK_THAT(cp.gate == CP_OPEN && cp.seat->want == CP_WANT_NO);
  cells[1]++;
  cp_service_release();
  CHECK_THAT(next(CP_RELEASED).a == CP_BY_BOUNDARY && !cp.seat->weights && !bars && !halts);
  CHECK_THAT(place((struct placing){CP_PLACED_YES, false, true}, &file) == 0 && file == -1);
}

static void refused(void) {
  int file;
  cp_service_release();
  next(CP_RELEASED);
  CHECK_THAT(place((struct placing){CP_PLACED_TOO_LARGE, false, false}, &file) == CP_PLACED_TOO_LARGE);
  CHECK_THAT(file == -1 && !cp.seat->weights && !cp.seat->want);
}

static void *grants(void *unused) {
  (void)unused;
  grant();
  return NULL;
}

/* Nobody would use the turn that is still to come. */
static void given_up_before_the_turn(void) {
  int file;
  pthread_t thread;
  CHECK_THAT(place((struct placing){CP_PLACED_YES, false, false}, &file) == 0);
  CHECK_THAT(!pthread_create(&thread, NULL, grants, NULL));
  cp_service_release();
  CHECK_THAT(!pthread_join(thread, NULL) && next(CP_RELEASED).a == CP_BY_BOUNDARY);
}

static void *toucher(void *unused) {
  (void)unused;
  cells[2]++;
  return NULL;
}

static void wait_until(const uint32_t *count) {
  for (uint64_t end = cp_now_us() + 20000000; !cp_load(count); pause_us(200)) CHECK_THAT(cp_now_us() < end);
}

/* It loses its turn in the middle: nothing of the weights can be read until the demand has been met again.  Meanwhile they
 * may have been dropped, and have come back somewhere else. */
static void loses_its_turn(bool dropped) {
  int file, before = weights_file;
  pthread_t thread;
  CHECK_THAT(place((struct placing){CP_PLACED_YES, false, true}, &file) == 0);
  cp_service_take();
  uint32_t number = cp.seat->demand_seq;
  ask_yield(CP_YIELD_NOW);
  CHECK_THAT(next(CP_RELEASED).a == CP_BY_FORCE && bars == 1 && !loads);
  CHECK_THAT(!pthread_create(&thread, NULL, toucher, NULL));
  CHECK_THAT(next(CP_WANT).a == number + 1 && cp.seat->demand_seq == number + 1 && cp.seat->weights == KEY);
  if (dropped) {
    take_back_weights();
    wait_until(&drops);
    weights_file = memfd_create("others", 0);
    send_weights(KEY);
  }
  say_placed(number + 1, CP_PLACED_YES);
  pause_us(1000); /* long enough to see it go wrong, if it does */
  CHECK_THAT(!cp_load(&loads));
  grant();
  CHECK_THAT(!pthread_join(thread, NULL));
  wait_until(&loads);
  CHECK_THAT(moved_to == inode(weights_file) && drops == dropped && !halts);
  cp_service_release();
  next(CP_RELEASED);
  CHECK_THAT(halts == 1); /* what came back with the turn goes with it */
  CHECK_THAT(loads == 1 && bars == 1);
  CHECK_THAT(place((struct placing){CP_PLACED_YES, false, true}, &file) == 0 && (file >= 0) == dropped);
  CHECK_THAT(!dropped || (inode(file) == inode(weights_file) && !close(file) && before != weights_file));
  cp_service_release();
  next(CP_RELEASED);
  bars = loads = halts = drops = 0;
}

/* And once more, while its weights are just being called back. */
static void loses_it_twice(void) {
  int file;
  pthread_t threads[2];
  CHECK_THAT(place((struct placing){CP_PLACED_YES, false, true}, &file) == 0);
  cp_service_take();
  uint32_t number = cp.seat->demand_seq;
  ask_yield(CP_YIELD_NOW);
  CHECK_THAT(next(CP_RELEASED).a == CP_BY_FORCE && bars == 1);
  CHECK_THAT(!pthread_create(&threads[0], NULL, toucher, NULL) && next(CP_WANT).a == number + 1);
  ends_in_between = true;
  say_placed(number + 1, CP_PLACED_YES);
  grant();
  struct cp_packet p = any();
  bool wanted = p.type == CP_WANT; /* who was in the middle of its touch may be quicker */
  if (wanted) CHECK_THAT(p.a == number + 2);
  if (wanted) p = any();
  CHECK_THAT(p.type == CP_RELEASED && p.a == CP_BY_FORCE && bars == 2 && !loads);
  CHECK_THAT(!pthread_create(&threads[1], NULL, toucher, NULL) && (wanted || next(CP_WANT).a == number + 2));
  say_placed(number + 2, CP_PLACED_YES);
  grant();
  for (int i = 0; i < 2; i++) CHECK_THAT(!pthread_join(threads[i], NULL));
  wait_until(&loads);
  cp_service_release();
  next(CP_RELEASED);
  CHECK_THAT(loads == 1 && bars == 2 && halts == 1);
  bars = loads = halts = 0;
}

/* Of another model, whose memory the process has had, too. */
static void each_has_its_own(void) {
  int file, before = weights_file;
  take_back_weights();
  wait_until(&clears);
  weights_file = memfd_create("back again", 0);
  CHECK_THAT(place((struct placing){CP_PLACED_YES, true, true}, &file) == 0 && inode(file) == inode(weights_file));
  CHECK_THAT(before != weights_file && !close(file));
  cp_service_release();
  next(CP_RELEASED);
  drops = 0;
}

static void *daemon_is_early(void *unused) {
  (void)unused;
  uint64_t first = next(CP_WANT).a;
  grant();
  CHECK_THAT(next(CP_RELEASED).a == CP_BY_EARLY && next(CP_WANT).a == first + 1);
  say_placed((uint32_t)first + 1, CP_PLACED_YES);
  grant();
  return NULL;
}

/* A turn that comes before the weights is for something else. */
static void turn_before_the_weights(void) {
  int file;
  pthread_t thread;
  CHECK_THAT(!pthread_create(&thread, NULL, daemon_is_early, NULL));
  CHECK_THAT(cp_service_place(&demand, &file) == 0 && !pthread_join(thread, NULL));
  cp_service_take();
  cp_service_release();
  next(CP_RELEASED);
}

/* What it touches without a demand is an ordinary want. */
static void without_a_demand(void) {
  pthread_t thread;
  CHECK_THAT(!pthread_create(&thread, NULL, toucher, NULL) && next(CP_WANT).a == 0);
  grant();
  CHECK_THAT(!pthread_join(thread, NULL) && cells[2] == 5);
  cp_service_release();
  next(CP_RELEASED);
}

int main(void) {
  size_t need;
  begin();
  cp_turn_end(CP_BY_BOUNDARY);
  next(CP_RELEASED);
  weights_file = memfd_create("weights", 0);
  CHECK_THAT(weights_file >= 0);
  cp.e_cap = CP_GIB;
  cells = cp_pool_alloc(&cp.arenas.win[1].pool, 4096, CP_GIB, 0, &need);
  computes_and_gives_back();
  refused();
  given_up_before_the_turn();
  loses_its_turn(false);
  loses_its_turn(true);
  loses_it_twice();
  each_has_its_own();
  without_a_demand();
  turn_before_the_weights();
  return 0;
}
