/* The library's sources that make a job on the host device, in one program.  Forks have their own tests, with real
 * processes: without WITH_FORK nothing is pending here. */
#ifndef CARPOOL_TEST_LIBRARY_H
#define CARPOOL_TEST_LIBRARY_H
#include "tests/check.h"
#include "tests/no_joining.h"

#include <sys/wait.h>

#include "arena/arena.c"
#include "turn/boundary.c"
#include "base/channel.c"
#include "base/libc.c"
#include "base/section.c"
#include "job/attach_socket.c"
#include "job/lane_change.c"
#include "job/seat_handoff.c"
#include "turn/grow.c"
#include "job/helper.c"
#include "store/host_store.c"
#include "store/offload.c"
#include "store/access_order.c"
#include "turn/pause.c"
#include "turn/pack.c"
#include "arena/packed.c"
#include "arena/persistent.c"
#include "arena/pool.c"
#include "arena/promote.c"
#include "arena/residue.c"
#include "store/restore.c"
#include "turn/turn.c"

#ifdef WITH_SERVICE
#include "weights/service.c"
#else
uint32_t cp_service_wants(void) { return 0; }
void cp_service_revoked(void) {}
void cp_service_again(void) {}
void cp_groups_dropped(uint64_t key) { (void)key; }
void cp_groups_clear(void) {}
bool cp_groups_any_dropped(void) { return false; }
bool cp_groups_moved(uint64_t key, int device) { return (void)key, (void)device, true; }
#endif

/* The daemon's answer to a HELLO, as the test plays it. */
static int (*answer_hello)(int fd, bool uses);
int cp_hello(int fd, bool uses) { return answer_hello ? answer_hello(fd, uses) : CP_PLAIN; }

/* Nothing attaches by itself. */
uint32_t cp_looks;
size_t cp_least_claim;
void cp_look_for_library(void) {}
void cp_look_in_child(void) {}

#ifdef WITH_FORK
#include "job/fork.c"
const struct cp_backend *const cp_backends[CP_KINDS] = {&cp_host_backend, &cp_host_backend};
#else
bool cp_fork_pending(void) { return false; }
void cp_fork_answer(void) {}
void cp_fork_wait(void) {}
void cp_fork_settle(void) {}
#endif

/* What the daemon asks of the holder. */
static inline void ask_yield(uint32_t yield) {
  if (yield == CP_YIELD_PAUSE) cp_store(&cp.seat->pause_seq, cp.seat->pause_seq + 1);
  cp_store(&cp.seat->yield, yield);
  cp_futex_wake(&cp.seat->yield);
  cp_notify(cp.seat);
}

static bool parking __attribute__((unused)) = true;

/* Page tables may be moved, or not: a process for each. */
static inline void both_modes(void) {
  int status = 0;
  pid_t pid = fork();
  CHECK_THAT(pid >= 0);
  parking = pid != 0;
  if (pid) CHECK_THAT(waitpid(pid, &status, 0) == pid && status == 0);
}
#endif
