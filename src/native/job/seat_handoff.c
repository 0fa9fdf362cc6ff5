/* A seat follows its use.
 *
 * A process that finds the seat of its job taken is *pending*: it asks again when it is about to use its device.  The
 * daemon then asks the process that has the seat to leave it.  That one does if it has never used it, and is pending
 * itself from then on; otherwise it stays, and the other one is a plain process. */
#include "base/process.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>

static struct cp_lock claim_lock; /* before all others.  Held from HELLO until the daemon has answered */
static struct stat known_channel; /* the file that the job channel is: the program may close it, and open others */
static bool from_attach_socket;   /* it is this process's own */
static bool by_itself;            /* this process was pending before the runtime has come */

static void warn(const char *why) {
  static const char prefix[] = "carpool: warning: cannot attach to the daemon: ";
  static const char end[] = "; this process runs without Carpool\n";
  struct iovec v[3] = {{(void *)(uintptr_t)prefix, sizeof prefix - 1},
                       {(void *)(uintptr_t)why, strlen(why)},
                       {(void *)(uintptr_t)end, sizeof end - 1}};
  syscall(SYS_writev, 2, v, 3);
}

static void note_channel(int fd) {
  if (cp_fstat(fd, &known_channel)) known_channel = (struct stat){0};
}

bool cp_channel_is_there(void) {
  struct stat now;
  return !cp_fstat(cp.fd, &now) && now.st_dev == known_channel.st_dev && now.st_ino == known_channel.st_ino;
}

/* A forked child has inherited no channel that it may use. */
static bool have_own_channel(void) {
  cp.fd = cp_joins() ? cp_join_now() : cp_attach_socket();
  from_attach_socket = cp.fd >= 0;
  if (from_attach_socket) note_channel(cp.fd);
  return from_attach_socket;
}

/* The channel that the runtime brings is not needed, and not left to other programs. */
static int already(int fd) {
  cp_failure = "this process is attached already";
  if (!by_itself) return -1;
  fcntl(fd, F_SETFD, FD_CLOEXEC);
  return cp.attached ? 0 : CP_LATER;
}

static int first_hello(int fd) {
  if (cp.attached || cp.pending) return already(fd);
  note_channel(fd);
  from_attach_socket = false;
  int answer = cp_hello(fd, false);
  if (answer != CP_LATER) return answer;
  fcntl(fd, F_SETFD, FD_CLOEXEC);
  cp.fd = fd;
  cp_store(&cp.pending, 1);
  return CP_LATER;
}

int cp_first_hello(int fd) {
  cp_acquire(&claim_lock);
  int answer = first_hello(fd);
  cp_release(&claim_lock);
  return answer;
}

/* Other threads may do the same, or the runtime says HELLO at this moment.  A thread that finds the
 * flag cleared finds the rest done. */
void cp_handoff_begin(uint32_t *may, void (*shut)(void)) {
  cp_acquire(&claim_lock);
  if (cp_load(may) && !cp_load(&cp.attached) && !cp_load(&cp.pending)) {
    by_itself = true;
    cp_store(&cp.pending, 1);
    shut();
  }
  cp_store(may, 0);
  cp_release(&claim_lock);
}

/* Nobody will ask over it again.  A channel that did not come from the attach socket is the program's to close. */
static void close_own_channel(void) {
  if (!from_attach_socket) return;
  from_attach_socket = false;
  cp_handoff_leave_channel();
}

static void ask_for_seat(void) {
  int answer = -1;
  if (cp.fd < 0 && !have_own_channel())
    warn(cp_joins() ? cp_failure : "the job's attach socket does not accept connections");
  else if (!cp_channel_is_there())
    warn("the program has closed the job channel");
  else if ((answer = cp_hello(cp.fd, true)) < 0)
    warn(cp_failure);
  if (answer) close_own_channel();
  cp_join_seated(!answer);
}

bool cp_claim_seat(void) {
  int saved = errno;
  cp_acquire(&claim_lock);
  if (cp_load(&cp.pending)) {
    ask_for_seat();
    cp_store(&cp.pending, 0);
  }
  cp_release(&claim_lock);
  errno = saved;
  return cp_active();
}

/* All locks held: nobody is in the middle of a first use. */
static bool unused(void) {
  const struct cp_seat *s = cp.seat;
  return !cp.allocs && cp.gate == CP_CLOSED && !cp_load(&s->turn) && !s->turns && !cp_load(&s->want) && !s->grow_seq;
}

/* Takes the lock.  False: a thread is attaching because it is about to use the seat.  One that attaches for the first
 * time will have done so in a moment. */
static bool nobody_claims(void) {
  if (cp_try(&claim_lock)) return true;
  if (cp_load(&cp.pending)) return false;
  cp_acquire(&claim_lock);
  return true;
}

bool cp_leave_seat(void) {
  bool unclaimed = nobody_claims();
  bool nobody_grows = cp_try(&cp.grow_lock); /* who does has come to use it */
  cp_acquire(&cp.pool_lock);
  cp_acquire(&cp.gate_lock);
  bool leaves = unclaimed && nobody_grows && unused();
  if (leaves) {
    cp_store(&cp.attached, 0);
    cp_arenas_end(&cp.arenas);
    cp_host_end(&cp.arenas.host);
  }
  cp_store(&cp.seat->leave, leaves ? CP_LEAVE_LEFT : CP_LEAVE_STAYS);
  cp_send(CP_LEFT, !leaves, 0, 0, 0);
  if (leaves) cp_store(&cp.pending, 1);
  cp_release(&cp.gate_lock);
  cp_release(&cp.pool_lock);
  if (nobody_grows) cp_release(&cp.grow_lock);
  if (unclaimed) cp_release(&claim_lock);
  return leaves;
}

void cp_handoff_leave_channel(void) {
  if (cp.fd >= 0 && cp_channel_is_there()) syscall(SYS_close, cp.fd);
  cp.fd = -1;
}

void cp_handoff_forked(void) {
  cp_reset_lock(&claim_lock);
  cp_store(&cp.pending, 0);
}
