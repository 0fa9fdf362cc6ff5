/* The library preloaded, as in a job: every way to the driver leads through the gate, and everything else is as without.
 * This program is linked with the driver and with nothing of ours. */
#include "tests/check.h"

#include <dlfcn.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cuda/driver/driver.h"
#include "tests/packet.h"
#include "abi/seat.h"

#define OK(call) CHECK_THAT((call) == CUDA_SUCCESS)
#define SKIPPED 77

static void *driver;
static int (*attach)(int);
static void (*begin_iterations)(void);

static const char *home(const void *pointer) {
  Dl_info info;
  CHECK_THAT(pointer && dladdr(pointer, &info) && info.dli_fname);
  const char *name = strrchr(info.dli_fname, '/');
  return name ? name + 1 : info.dli_fname;
}
static int gated(const void *pointer) { return !strcmp(home(pointer), "libcarpool.so"); }

static void *asked(const char *name, int version, cuuint64_t flags) {
  void *pointer = NULL;
  CUdriverProcAddressQueryResult status;
  OK(cuGetProcAddress_v2(name, &pointer, version, flags, &status));
  return pointer;
}

static void symbols(void) {
  CHECK_THAT(gated((void *)cuLaunchKernel) && gated((void *)cuGetProcAddress_v2)); /* ELF */
  CHECK_THAT(!gated((void *)cuStreamQuery));
  CHECK_THAT(dlsym(driver, "cuLaunchKernel") == (void *)cuLaunchKernel);
  CHECK_THAT(gated(dlsym(driver, "cuLaunchKernel_ptsz")) && dlsym(driver, "cuLaunchKernel_ptsz") != (void *)cuLaunchKernel);
  CHECK_THAT(gated(dlsym(RTLD_DEFAULT, "cuMemcpyHtoD_v2")) && gated(dlsym(RTLD_NEXT, "cuMemcpyHtoD_v2")));
  CHECK_THAT(!strcmp(home(dlsym(driver, "cuStreamQuery")), "libcuda.so.1"));
  CHECK_THAT(dlsym(driver, "cuNoSuchCall") == NULL && dlerror() != NULL);
  CHECK_THAT(gated(dlsym(driver, "cuGetProcAddress")));
}

/* By dlsym's own rules: next after this program comes the preloaded library, next after that libc. */
static void other_names(void) {
  void *old = dlvsym(RTLD_DEFAULT, "dlsym", "GLIBC_2.2.5");
  CHECK_THAT(gated(dlsym(RTLD_NEXT, "read")) && !strncmp(home(dlsym(RTLD_NEXT, "getpid")), "libc.so", 7));
  CHECK_THAT(dlsym(RTLD_DEFAULT, "main_is_not_exported") == NULL && dlerror() != NULL);
  CHECK_THAT(old == NULL || dlsym(RTLD_DEFAULT, "dlsym") != NULL);
  CHECK_THAT(gated(dlsym(RTLD_DEFAULT, "dlsym")));
}

/* One name, several forms: by version and by flags. */
static void versions(void) {
  CHECK_THAT(asked("cuLaunchKernel", 12000, 0) == (void *)cuLaunchKernel);
  cuuint64_t own = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
  CHECK_THAT(asked("cuLaunchKernel", 12000, own) == dlsym(driver, "cuLaunchKernel_ptsz"));
  CHECK_THAT(asked("cuMemcpyHtoD", 12000, 0) == (void *)cuMemcpyHtoD_v2);
  CHECK_THAT(asked("cuMemcpyHtoD", 12000, 2) == (void *)cuMemcpyHtoD_v2_ptds);
  CHECK_THAT(asked("cuMemPrefetchAsync", 8000, 0) == (void *)cuMemPrefetchAsync);
  CHECK_THAT(asked("cuMemPrefetchAsync", 12020, 0) == (void *)cuMemPrefetchAsync_v2);
  CHECK_THAT(asked("cuGetProcAddress", 11030, 0) == (void *)cuGetProcAddress);
  CHECK_THAT(asked("cuGetProcAddress", 12000, 0) == (void *)cuGetProcAddress_v2);
  CHECK_THAT(!gated(asked("cuCtxSynchronize", 12000, 0)));
  CHECK_THAT(asked("cuCtxSynchronize", 12000, 0) != asked("cuCtxSynchronize", 13000, 0));
  CHECK_THAT(asked("cuLaunchKernel", 3000, 0) == NULL && asked("cuNoSuchCall", 12000, 0) == NULL);
  /* Through pointers got from pointers, as the runtime does. */
  CUresult (*ask)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *);
  *(void **)&ask = dlsym(driver, "cuGetProcAddress_v2");
  void *pointer;
  OK(ask("cuGraphLaunch", &pointer, 12000, 0, NULL));
  CHECK_THAT(pointer == (void *)cuGraphLaunch);
  OK(cuGetProcAddress("cuMemsetD32", &pointer, 11030, 0));
  CHECK_THAT(pointer == (void *)cuMemsetD32_v2);
}

static struct cp_seat *attach_job(int *ours) {
  int pair[2], seat_table_fd = memfd_create("board", 0);
  size_t bytes = CP_BOARD_HEADER + CP_SEATS * sizeof(struct cp_seat);
  CHECK_THAT(!ftruncate(seat_table_fd, (off_t)bytes) && !socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair));
  char *seat_table = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, seat_table_fd, 0);
  *(struct cp_board_header *)seat_table = (struct cp_board_header){CP_BOARD_MAGIC, CP_PROTOCOL, CP_KIND_CUDA};
  struct cp_seat *seat = (struct cp_seat *)(seat_table + CP_BOARD_HEADER);
  seat->whole = 1; /* its memory is the driver's: who asks for it is the question here */
  send_packet(pair[1], (struct cp_packet){.type = CP_SETUP, .b = 1 << 30, .d = 1 << 28}, seat_table_fd);
  CHECK_THAT(attach(pair[0]) == 0);
  *ours = pair[1];
  return seat;
}

/* Bound to the preloaded library, as in a library that is linked with the runtime. */
extern int cudaMalloc(void **address, size_t bytes) __attribute__((weak));

/* There is only a runtime's, for those that see a runtime. */
static void runtime_call(void) {
  void *address;
  CHECK_THAT(dlsym(RTLD_DEFAULT, "cudaMalloc") == NULL);
  CHECK_THAT(gated((void *)cudaMalloc) && cudaMalloc(&address, 512) == 3); /* cudaErrorInitializationError */
  void *runtime = dlopen("libcudart.so.12", RTLD_NOW | RTLD_LOCAL);
  CHECK_THAT(runtime && !strcmp(home(dlsym(runtime, "cudaMalloc")), "libcudart.so.12"));
}

/* Who asks for memory: the allocator, also through the runtime, or somebody else. */
static void callers(struct cp_seat *seat) {
  CUdeviceptr a, b, c;
  CUresult (*fake_malloc)(CUdeviceptr *, size_t);
  CUresult (*directly)(void *, CUdeviceptr *, size_t), (*through)(void *, CUdeviceptr *, size_t);
  void *runtime = dlopen("libcudart.so.12", RTLD_NOW | RTLD_LOCAL);
  void *allocator = dlopen("libc10_cuda.so", RTLD_NOW | RTLD_LOCAL);
  CHECK_THAT(runtime && allocator && dlopen("libgcc_s.so.1", RTLD_NOW));
  *(void **)&fake_malloc = dlsym(runtime, "fake_cudaMalloc");
  *(void **)&directly = dlsym(allocator, "allocator_directly");
  *(void **)&through = dlsym(allocator, "allocator_through_runtime");
  OK(directly((void *)cuMemAlloc_v2, &a, 1 << 20)); /* before the first iteration */
  CHECK_THAT(seat->e_live == 0 && seat->p_live == 1 << 20);
  begin_iterations();
  OK(directly((void *)cuMemAlloc_v2, &b, 1 << 20));
  CHECK_THAT(seat->e_live == 1 << 20 && seat->p_live == 1 << 20);
  OK(through((void *)fake_malloc, &c, 1 << 20));
  CHECK_THAT(seat->e_live == 2 << 20 && seat->p_live == 1 << 20 && seat->e_peak == 2 << 20);
  OK(cuMemFree_v2(c));
  OK(fake_malloc(&c, 1 << 20)); /* another library's, through the runtime */
  CHECK_THAT(seat->e_live == 1 << 20 && seat->p_live == 2 << 20);
  OK(cuMemFree_v2(a));
  OK(cuMemFree_v2(b));
  OK(cuMemFree_v2(c));
  CHECK_THAT(seat->e_live == 0 && seat->p_live == 0);
}

static void *set_memory(void *address) {
  CUcontext context;
  OK(cuDevicePrimaryCtxRetain(&context, 0));
  OK(cuCtxSetCurrent(context));
  CUresult (*set)(CUdeviceptr, unsigned char, size_t);
  *(void **)&set = asked("cuMemsetD8", 12000, 0);
  OK(set(*(CUdeviceptr *)address, 9, 4096));
  return NULL;
}

static void waits(struct cp_seat *seat, int channel) {
  pthread_t thread;
  CUdeviceptr address;
  struct cp_packet p = {0};
  OK(cuMemAlloc_v2(&address, 4096));
  CHECK_THAT(!pthread_create(&thread, NULL, set_memory, &address));
  while (p.type != CP_WANT) CHECK_THAT(recv(channel, &p, sizeof p, 0) == sizeof p);
  CHECK_THAT(seat->turns == 0);
  __atomic_store_n(&seat->turn, 1, __ATOMIC_SEQ_CST);
  pid_t waker = fork(); /* any process may wake; this one also shows that fork works meanwhile */
  if (waker == 0) _exit(0);
  CHECK_THAT(waitpid(waker, NULL, 0) == waker);
  syscall(SYS_futex, &seat->turn, FUTEX_WAKE, 1 << 30, NULL, NULL, 0);
  pthread_join(thread, NULL);
  CHECK_THAT(seat->turns == 1);
  OK(cuMemFree_v2(address));
}

/* Bound to the preloaded library, as in a library that is linked with NCCL. */
extern int ncclCommInitAll(void **communicators, int ranks, const int *devices) __attribute__((weak));

/* Whoever begins to communicate is told of; without NCCL there is no such call. */
static void communicators(struct cp_seat *seat) {
  struct id {
    char bytes[128];
  } id = {.bytes = {[0] = 3, [127] = 4}};
  int (*init)(void **, int, struct id, int), (*all)(void **, int, const int *), devices[] = {5, 6};
  void *communicator = NULL;
  CHECK_THAT(dlsym(RTLD_DEFAULT, "ncclCommInitRank") == NULL);
  CHECK_THAT(ncclCommInitAll && ncclCommInitAll(NULL, 1, devices) == 2); /* ncclSystemError */
  void *library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  CHECK_THAT(library && dlsym(library, "ncclCommInitRankConfig") == NULL);
  CHECK_THAT(!gated(dlsym(library, "ncclCommCount")));
  CHECK_THAT(ncclCommInitAll(NULL, 1, devices) == 2); /* it is not in this program's scope */
  *(void **)&init = dlsym(library, "ncclCommInitRank");
  *(void **)&all = dlsym(library, "ncclCommInitAll");
  CHECK_THAT(gated(*(void **)&init) && gated(*(void **)&all));
  CHECK_THAT(init(&communicator, 1, id, 0) == 1007 && communicator == &communicator);
  CHECK_THAT(all(NULL, 1, devices) == 5 && !(seat->traits & CP_TRAIT_COLLECTIVE));
  CHECK_THAT(init(&communicator, 2, id, 1) == 2107 && seat->traits & CP_TRAIT_COLLECTIVE);
  CHECK_THAT(all(NULL, 2, devices) == 6);
}

/* Further ones have wrappers of their own, as long as there are any. */
static void further_communicators(struct cp_seat *seat) {
  void *latest = NULL;
  seat->traits &= ~(uint32_t)CP_TRAIT_COLLECTIVE;
  for (int i = 0; i < 3; i++) {
    void *pointer = dlsym(dlmopen(LM_ID_NEWLM, "libnccl.so.2", RTLD_NOW), "ncclCommInitRank");
    CHECK_THAT(gated(pointer) && pointer != latest && !(seat->traits & CP_TRAIT_COLLECTIVE));
    latest = pointer;
  }
  void *library = dlmopen(LM_ID_NEWLM, "libnccl.so.2", RTLD_NOW);
  CHECK_THAT(!gated(dlsym(library, "ncclCommInitRank")) && seat->traits & CP_TRAIT_COLLECTIVE);
}

/* A hooked name behind which is what the table does not know: it passes, and the daemon is told of the first. */
static void unknown_form(struct cp_seat *seat) {
  void *other = dlopen("libc10_cuda.so", RTLD_NOW | RTLD_NOLOAD);
  (void)dlsym(other, "allocator_directly");
  CHECK_THAT(!(seat->traits & CP_TRAIT_UNGATED));
  CHECK_THAT(!strcmp(home(dlsym(other, "cuLaunchKernel_v9")), "libc10_cuda.so"));
  CHECK_THAT(seat->traits & CP_TRAIT_UNGATED && !strcmp(seat->passing, "cuLaunchKernel_v9"));
  CHECK_THAT(!strcmp(home(dlsym(other, "cuLaunchGrid")), "libc10_cuda.so"));
  CHECK_THAT(!strcmp(seat->passing, "cuLaunchKernel_v9"));
}

static void bypassed(void) {
  setenv("CARPOOL_DISABLE", "1", 1);
  CHECK_THAT(!strcmp(home(dlsym(driver, "cuLaunchKernel")), "libcuda.so.1"));
  CHECK_THAT(!strcmp(home(asked("cuLaunchKernel", 12000, 0)), "libcuda.so.1"));
  setenv("CARPOOL_DISABLE", "0", 1);
  CHECK_THAT(gated(dlsym(driver, "cuLaunchKernel")));
}

int main(void) {
  int channel;
  alarm(60);
  *(void **)&attach = dlsym(RTLD_DEFAULT, "cp_attach");
  *(void **)&begin_iterations = dlsym(RTLD_DEFAULT, "cp_begin_iterations");
  if (!attach) {
    printf("the library is preloaded into the plain variant only\n");
    return SKIPPED;
  }
  driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  CHECK_THAT(driver);
  symbols();
  other_names();
  versions();
  bypassed();
  runtime_call();
  CUcontext context;
  setenv("CUDA_VISIBLE_DEVICES", "17", 1); /* as a script does */
  setenv("CARPOOL_CUDA_DEVICE", "0", 1);
  OK(cuInit(0));
  CHECK_THAT(!strcmp(getenv("CUDA_VISIBLE_DEVICES"), "0"));
  OK(cuDevicePrimaryCtxRetain(&context, 0));
  OK(cuCtxSetCurrent(context));
  struct cp_seat *seat = attach_job(&channel);
  callers(seat);
  waits(seat, channel);
  unknown_form(seat);
  communicators(seat);
  further_communicators(seat);
  return 0;
}
