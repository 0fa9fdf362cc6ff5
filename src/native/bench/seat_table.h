/* For benchmarks with libcarpool preloaded: the daemon's part, a seat table with seats and the way to attach to one. */
#ifndef CARPOOL_BENCH_BOARD_H
#define CARPOOL_BENCH_BOARD_H
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cuda/driver/driver.h"
#include "abi/seat.h"

#define NEED(x) \
  if (!(x)) { \
    fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #x); \
    exit(1); \
  }

struct seat_table {
  int fd;
  char *memory;
};

static inline struct seat_table make_seat_table(void) {
  struct seat_table b = {.fd = memfd_create("board", 0)};
  size_t bytes = CP_BOARD_HEADER + CP_SEATS * sizeof(struct cp_seat);
  NEED(!ftruncate(b.fd, (off_t)bytes));
  b.memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, b.fd, 0);
  NEED(b.memory != MAP_FAILED);
  *(struct cp_board_header *)b.memory = (struct cp_board_header){CP_BOARD_MAGIC, CP_PROTOCOL, CP_KIND_CUDA};
  return b;
}

static inline struct cp_seat *seat_at(struct seat_table b, uint32_t slot) {
  return (struct cp_seat *)(b.memory + CP_BOARD_HEADER) + slot;
}

/* The job's side of the channel is pair[0]. */
static inline void attach_to(struct seat_table b, uint32_t slot, int pair[2]) {
  struct cp_packet p = {.type = CP_SETUP, .a = slot};
  union {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(sizeof(int))];
  } control = {.align = {.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS}};
  struct iovec v = {.iov_base = &p, .iov_len = sizeof p};
  struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
  memcpy(CMSG_DATA(&control.align), &b.fd, sizeof b.fd);
  int (*cp_attach)(int);
  *(void **)&cp_attach = dlsym(RTLD_DEFAULT, "cp_attach");
  NEED(cp_attach && sendmsg(pair[1], &m, 0) == (ssize_t)sizeof p && cp_attach(pair[0]) == 0);
}

/* Of the driver, as a program finds it: through the gate if there is one. */
static inline void *call(void *driver, const char *name) {
  void *pointer = dlsym(driver, name);
  NEED(pointer);
  return pointer;
}
#define CALL(driver, name) ((__typeof__(name) *)call(driver, #name))

/* The driver, with its primary context current and the stub's kernels loaded. */
static inline void *start_driver(CUmodule *module) {
  CUcontext context;
  void *driver = dlopen("libcuda.so.1", RTLD_NOW);
  NEED(driver);
  NEED(!CALL(driver, cuInit)(0));
  NEED(!CALL(driver, cuDevicePrimaryCtxRetain)(&context, 0));
  NEED(!CALL(driver, cuCtxSetCurrent)(context));
  NEED(!CALL(driver, cuModuleLoadData)(module, "stub"));
  return driver;
}
#endif
