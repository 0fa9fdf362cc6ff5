/* Folder job/: the life of a process of a job: attaching, handing its seat to another process, fork, signals, malloc,
 * and the helper thread.  What the runtime, libc or the daemon call first enters here; the work is done by other folders.
 * May include: base, weights. */
/* Attaching to the daemon, and the interface for the runtime. */
#include "base/libc.h"
#include "base/process.h"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>

#define MOST_FILES 64
#define CP_TAKEN 1 /* why it is refused: by another process of the job */

struct cp_counters {
  uint64_t p_live, p_peak, e_live, e_peak, iterations, traps, turns, syscalls, residue, residue_total, forced, early,
      promoted, allocs, frees;
};

static int fail(const char *why) {
  cp_failure = why;
  return -1;
}

/* All ordinary CPU tensor storage is allocated there: PyTorch's, and ggml's (llama.cpp). */
#define LIBC10 "libc10.so"
#define GGML "libggml-base.so"

static bool is_library(const struct dl_phdr_info *info, const char *library) {
  const char *name = info->dlpi_name ? strrchr(info->dlpi_name, '/') : NULL;
  return name && !strncmp(name + 1, library, strlen(library));
}

static int is_ggml(struct dl_phdr_info *info, size_t size, void *unused) {
  (void)size, (void)unused;
  return is_library(info, GGML);
}

static int add_text(struct dl_phdr_info *info, size_t size, void *unused) {
  (void)size, (void)unused;
  if (!is_library(info, LIBC10) && !is_library(info, GGML)) return 0;
  for (int i = 0; i < info->dlpi_phnum && cp.text_count < 4; i++) {
    const ElfW(Phdr) *h = &info->dlpi_phdr[i];
    if (h->p_type != PT_LOAD || !(h->p_flags & PF_X)) continue;
    cp.text[cp.text_count].lo = info->dlpi_addr + h->p_vaddr;
    cp.text[cp.text_count++].hi = info->dlpi_addr + h->p_vaddr + h->p_memsz;
  }
  return 0;
}

bool cp_find_text(void) {
  if (!cp.text_count) dl_iterate_phdr(add_text, NULL);
  return cp.text_count;
}

bool cp_find_ggml(void) { return dl_iterate_phdr(is_ggml, NULL) && cp_find_text(); }

static void close_all(const int *fds, int count) {
  for (int i = 0; i < count; i++) close(fds[i]);
}

/* Returns the number of descriptors received, or -1. */
static int receive(int fd, struct cp_packet *p, int *fds) {
  union {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(MOST_FILES * sizeof(int))];
  } control;
  struct iovec v = {.iov_base = p, .iov_len = sizeof *p};
  struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
  ssize_t n = -1;
  while (cp_join_readable(fd) && (n = recvmsg(fd, &m, MSG_CMSG_CLOEXEC)) < 0 && errno == EINTR);
  if (n < 0) return -1;
  struct cmsghdr *c = CMSG_FIRSTHDR(&m);
  int count = c && c->cmsg_type == SCM_RIGHTS ? (int)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int)) : 0;
  if (count) memcpy(fds, CMSG_DATA(c), (size_t)count * sizeof(int));
  if (n == sizeof *p) return count;
  close_all(fds, count);
  return -1;
}

static bool is_late(uint32_t type) {
  return type == CP_LANE || type == CP_BANK || type == CP_EXTENT || type == CP_CUT || type == CP_WEIGHTS;
}

/* What the daemon sent to an earlier process of this job, which did not read it any more, is nothing to this one. */
static int receive_answer(int fd, struct cp_packet *p, int *fds) {
  for (;;) {
    int n = receive(fd, p, fds);
    if (n < 0 || !is_late(p->type)) return n;
    close_all(fds, n);
  }
}

/* The backend of a seat table, NULL: there is none that takes what the daemon has sent. */
static const struct cp_backend *backend_of(const struct cp_board_header *header, const struct cp_packet *p, int count) {
  if (header->magic != CP_BOARD_MAGIC || header->protocol != CP_PROTOCOL) return NULL;
  if (header->kind >= CP_KINDS || p->a >= CP_SEATS) return NULL;
  const struct cp_backend *backend = cp_backends[header->kind];
  return !backend->files || backend->files == count ? backend : NULL;
}

#define TABLE_BYTES (CP_BOARD_HEADER + CP_SEATS * sizeof(struct cp_seat))

static char *map_table(int fd) {
  if (!cp_has_bytes(fd, TABLE_BYTES)) return MAP_FAILED;
  return mmap(NULL, TABLE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
}

/* The first descriptor has been closed. */
static int refuse(const int *fds, int count, char *seat_table, const char *why) {
  close_all(fds + 1, count - 1);
  if (seat_table != MAP_FAILED) munmap(seat_table, TABLE_BYTES);
  return fail(why);
}

/* Owns the descriptors. */
static int set_up(int fd, const struct cp_packet *p, const int *fds, int count) {
  char *seat_table = map_table(fds[0]);
  close(fds[0]);
  if (seat_table == MAP_FAILED) return refuse(fds, count, seat_table, "the seat table could not be mapped");
  const struct cp_backend *backend = backend_of((const struct cp_board_header *)seat_table, p, count);
  if (!backend) return refuse(fds, count, seat_table, "the daemon speaks another version; restart it");
  cp.backend = backend;
  cp.fd = fd;
  cp.slot = (uint32_t)p->a;
  cp.seat_table = seat_table;
  cp.seat = (struct cp_seat *)(seat_table + CP_BOARD_HEADER) + p->a;
  cp.p_cap = cp.seat->p_limit;
  cp.e_cap = cp.seat->e_limit;
  cp.engine = getenv("CARPOOL_ENGINE") != NULL;
  cp.route_persistent = 1;
  cp_boundary_init(&cp.boundary);
  cp.lane = p->c;
  cp.buffer = p->e;
  if (backend->attach(p, fds, count)) return -1;
  cp_put(&cp.seat->pid, (uint32_t)getpid());
  if (cp_signals_start()) return fail("the trap could not be installed");
  if (cp_helper_start()) return fail("the helper thread could not be started");
  fcntl(fd, F_SETFD, FD_CLOEXEC);
  cp_store(&cp.attached, 1);
  if (backend->attached) backend->attached();
  return 0;
}

static int refused(const struct cp_packet *p, bool uses) {
  if (p->a != CP_TAKEN || uses) return CP_PLAIN;
  if (p->b < CP_KINDS && cp_backends[p->b]->pending) cp_backends[p->b]->pending();
  return CP_LATER;
}

static bool library_loaded(void) {
  for (int kind = 0; kind < CP_KINDS; kind++)
    if (cp_backends[kind]->loaded && cp_backends[kind]->loaded()) return true;
  return false;
}

int cp_hello(int fd, bool uses) {
  struct cp_packet p = {.type = CP_HELLO, .pid = (uint32_t)getpid(), .a = CP_PROTOCOL, .b = uses};
  int fds[MOST_FILES];
  if (cp_libc_is_foreign()) return fail(CP_FOREIGN_LIBC);
  if (sysconf(_SC_PAGESIZE) != (long)CP_PAGE) return fail(CP_FOREIGN_PAGES);
  if (!uses) cp_find_text(); /* none by now: its tensors are not the device's */
  if (!cp.text_count && !library_loaded()) return fail("libc10.so is not loaded: import torch first");
  if (send(fd, &p, sizeof p, MSG_NOSIGNAL) != sizeof p) return fail("the job channel is closed");
  int n = receive_answer(fd, &p, fds);
  if (n < 0 && cp_join_interrupted()) return fail("it was interrupted while it waited for its place");
  if (n < 0) return fail("the job channel was closed before the daemon answered");
  if (p.type == CP_SETUP && n) return set_up(fd, &p, fds, n);
  close_all(fds, n);
  return p.type == CP_REFUSED ? refused(&p, uses) : fail("the daemon sent an answer that this library does not know");
}

/* 0 attached, 1 refused: run plainly, 2 another process is attached: this one asks again when it is about to use its
 * device, -1 error (cp_error).  Blocks until the daemon answers. */
CP_EXPORT int cp_attach(int fd) { return cp_first_hello(fd); }

CP_EXPORT const char *cp_error(void) { return cp_failure; }

/* ---- iterations -------------------------------------------------------------------------------------------------------- */

/* From here on memory belongs to one iteration.  An engine has none: its cache comes after a first forward, and stays. */
static void begin_ephemeral(void) {
  if (!cp.engine) cp_store(&cp.route_persistent, 0);
}

static bool finish_step(uint32_t key) {
  cp_acquire(&cp.pool_lock);
  if (!cp_active()) { /* the seat has just gone */
    cp_release(&cp.pool_lock);
    return false;
  }
  uint64_t now = cp_now_us();
  bool give_way = cp_boundary_step(&cp.boundary, key, cp.arenas.win[cp.arenas.ephemeral].pool.live, now);
  begin_ephemeral();
  cp_put(&cp.seat->iterations, cp.boundary.iterations);
  cp_put(&cp.seat->boundary_us, now);
  cp_release(&cp.pool_lock);
  if (cp.backend->boundary) return cp.backend->boundary();
  if (give_way) cp_turn_end(CP_BY_BOUNDARY);
  return false;
}

CP_EXPORT void cp_begin_iterations(void) {
  if (cp_active()) begin_ephemeral();
}

/* An optimizer's first step makes its state, which is persistent. */
CP_EXPORT void cp_step_begin(int optimizer, int first) {
  (void)optimizer;
  if (cp_active() && first) cp_store(&cp.route_persistent, 1);
}

/* Returns 1: the turn is about to end here, and the caller is to hand over the live blocks (cp_live_blocks). */
CP_EXPORT int cp_step_end(int optimizer, int first) {
  (void)first;
  if (!cp_active()) return 0;
  if (!cp.boundary.explicit_) return finish_step(optimizer < 0 ? 0 : (uint32_t)optimizer % CP_EXPLICIT_KEY);
  begin_ephemeral();
  return 0;
}

CP_EXPORT void cp_iteration_begin(void) {
  if (!cp_active()) return;
  cp.boundary.explicit_ = true;
  begin_ephemeral();
}

/* Returns what cp_step_end returns. */
CP_EXPORT int cp_iteration_end(void) { return cp_active() && finish_step(CP_EXPLICIT_KEY); }

CP_EXPORT void cp_progress(uint64_t done, uint64_t total) {
  if (!cp_active()) return;
  cp_put(&cp.seat->progress_total, total);
  cp_put(&cp.seat->progress_done, done);
}

/* The main process is about to end.  ``what``: CP_OUT_OF_*, by the error that nobody has handled. */
CP_EXPORT void cp_out_of_memory(uint32_t what) {
  if (cp_active()) cp_put(&cp.seat->out_of_memory, what);
}

CP_EXPORT void cp_counters(struct cp_counters *c) {
  memset(c, 0, sizeof *c);
  const struct cp_seat *s = cp.seat;
  if (!s || !cp_load(&cp.attached)) return;
  *c = (struct cp_counters){s->p_live, s->p_peak, s->e_live, s->e_peak, s->iterations, s->traps, s->turns,
                            cp_load(&cp_syscalls), s->residue, s->residue_total, s->forced, s->early, s->promoted,
                            cp.allocs, cp.frees};
}
