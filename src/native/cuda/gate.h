/* Folder cuda/: CUDA devices: wrappers of the driver's calls, turns on a GPU, and memory by grant.  All that names the
 * driver enters, and nothing outside names it: the rest of the library calls cp_backends.
 * May include: base, cuda/driver, cuda/memory, cuda/turn. */
/* The gate before the CUDA driver, as its parts see it.
 *
 * call_table.c       a wrapper for each call that submits work or makes its job exclusive, and the table of all entry points, from functions.def
 * forked_children.c  forked children that come to use the device
 * driver_load.c      finds the driver; exchanges pointers that programs get for their wrappers
 * dlsym.c            dlsym, dlvsym
 * gate.c             threads in gated calls, waiting for the turn
 * visible_devices.c  which devices the process sees
 * nccl.c             processes that must compute at the same time
 *
 * In cuda/turn/:
 * turn.c             turns begin and end, early release, boundaries
 * run_ahead.c        how far a job may run ahead of its device
 * backlog.c          and how much it may have under way there beside a service
 * streams.c          contexts, streams, captures: what has to be drained, and when that is forbidden
 * drain.c            has everything ended that was submitted?
 *
 * In cuda/memory/:
 * alloc_calls.c      the calls that get and free memory
 * allocator_cache.c  the runtime's, for PyTorch's allocator: has its cache emptied where memory is short
 * pointer_calls.c    questions about addresses
 * caller.c           who asks for memory
 * driver_memory.c    the driver's own memory, counted
 * share_limit.c      and limited, in further processes of a job
 * weights.h          weights of services: weights.c, weight_groups.c
 * handles.h          memory that the program makes itself: handles.c, handle_grants.c, handle_calls.c, handle_moves.c
 * grant.h            memory by grant: extents.c, pools.c, segments.c, live_blocks.c, residue.c
 *
 * Whether a process has attached does not matter to most of it: the gate is simply never shut then.
 *
 * Locks: the books' lock comes after all others and is not held while the driver may wait for the job's work, but
 * where a launch queue has no room for the event of a boundary (cuda/turn/run_ahead.c): the end of a turn only
 * tries it.  Of ours only it, the extents' lock, or that of handles, is held during a call of the driver, but for a turn's begin and
 * end (gate lock). */
#ifndef CARPOOL_CUDA_H
#define CARPOOL_CUDA_H
#include "base/process.h"

#include "cuda/driver/driver.h"

#define CP_HIDDEN __attribute__((visibility("hidden")))

/* ---- the driver's own entry points --------------------------------------------------------------------------------- */

struct cp_real {
#define CP_WORK(symbol, ...) __typeof__(symbol) *symbol;
#define CP_ALONE(symbol, ...) __typeof__(symbol) *symbol;
#define CP_HOOK(class_, symbol, ...) __typeof__(symbol) *symbol;
#include "cuda/functions.def"
#define CP_CALLED(X) \
  X(cuCtxGetCurrent) X(cuCtxPopCurrent_v2) X(cuCtxSynchronize) X(cuDeviceGetCount) X(cuDevicePrimaryCtxGetState) \
  X(cuEventCreate) X(cuEventDestroy_v2) X(cuEventQuery) X(cuEventRecord) X(cuEventRecord_ptsz) X(cuEventSynchronize) \
  X(cuMemAddressFree) X(cuMemAddressReserve) X(cuMemFreeHost) X(cuMemHostAlloc) X(cuMemHostRegister_v2) \
  X(cuMemHostUnregister) X(cuMemImportFromShareableHandle) X(cuStreamIsCapturing) \
  X(cuStreamIsCapturing_ptsz) X(cuStreamQuery) X(cuThreadExchangeStreamCaptureMode)
#define CP_FIELD(symbol) __typeof__(symbol) *symbol;
  CP_CALLED(CP_FIELD)
};
/* Every pointer can be called once cp_driver_start has returned: what the driver lacks answers CUDA_ERROR_NOT_SUPPORTED. */
extern CP_HIDDEN struct cp_real cp_real;

struct cp_entry {
  const char *symbol;
  int version, own;
  void *wrapper; /* NULL: called by us, not hooked */
  void **real;
};
extern CP_HIDDEN const struct cp_entry cp_entries[];
extern CP_HIDDEN const uint32_t cp_entry_count;

/* driver_load.c */
extern CP_HIDDEN uint32_t cp_driver_ready;
void cp_driver_start(void);
void cp_driver_forked(void); /* in the child: nobody is looking for the driver */
bool cp_driver_known(void); /* is the driver loaded?  Loads nothing */
/* For a name and the pointer that the program would get for it: the pointer that it gets. */
void *cp_driver_swap(const char *name, void *pointer);
bool cp_driver_ours(const void *pointer); /* one of our wrappers? */
void *cp_next_dlsym(void *handle, const char *name); /* libc's */
/* dlsym.c.  What a reference to the name is bound to in the library in which the address lies. */
void *cp_meant_by(const void *address, const char *name);

/* Exports a function under the name, for references of a version only (abi/exports.map): no dlsym finds it. */
#define CP_LINKED(function, suffix, name) \
  extern __typeof__(function) linked_##function##suffix __attribute__((alias(#function), visibility("default"))); \
  __asm__(".symver linked_" #function #suffix ", " name)

/* Defines an entry point: the wrapper by a name that no other library can take from us, and the exported alias. */
#define CP_GATE(symbol, ...) \
  CUresult gate_##symbol(__VA_ARGS__); \
  CUresult symbol(__VA_ARGS__) __attribute__((alias("gate_" #symbol))); \
  CP_LINKED(gate_##symbol, , #symbol "@CARPOOL"); \
  CUresult gate_##symbol(__VA_ARGS__)

/* ---- the gate ------------------------------------------------------------------------------------------------------ */

/* One per thread that has called the driver, never freed.  The thread alone writes seq and stream. */
struct cp_thread {
  uint64_t seq;    /* odd: in a gated call.  Grows with each of them */
  CUstream stream; /* of its latest work */
  uint32_t taken;  /* the record belongs to a living thread */
  uint32_t following; /* what it submits comes after the weights that it needs */
  struct cp_thread *next;
} __attribute__((aligned(128)));

extern CP_HIDDEN __thread struct cp_thread *cp_thread __attribute__((tls_model("initial-exec")));
extern CP_HIDDEN struct cp_thread *cp_threads;
/* Streams that have got work since a turn last began to end: a bit for each, which several may share. */
#define CP_STREAM_BITS 4096u
extern CP_HIDDEN uint64_t cp_worked[CP_STREAM_BITS / 64];
extern CP_HIDDEN uint32_t cp_own_streams; /* per-thread default streams have been used, by any thread so far */

/* Read by every gated call; 0: pass. */
enum { CP_SHUT = 1, CP_FENCE = 2 /* there is no membarrier: each call needs a fence */, CP_AHEAD = 4, CP_ASK = 8 /* the process is pending */, CP_BOUND = 16, CP_GUARD = 32 };
extern CP_HIDDEN uint32_t cp_shut;

struct cp_thread *cp_thread_start(void);
void cp_enter_slowly(struct cp_thread *t, uint64_t seq);

/* The thread writes its word and reads the gate's; the helper writes the gate's, lets membarrier() order all threads, and
 * reads theirs.  So either the thread sees a shut gate, or the helper sees it in flight.
 * NULL: a call within a call, which passes with the outer one. */
static inline struct cp_thread *cp_enter(uint64_t *leave) {
  struct cp_thread *t = cp_thread;
  if (CP_UNLIKELY(!t)) t = cp_thread_start();
  uint64_t seq = t->seq;
  if (CP_UNLIKELY(seq & 1)) return NULL;
  cp_put(&t->seq, seq + 1);
  __asm__ volatile("" ::: "memory");
  if (CP_UNLIKELY(__atomic_load_n(&cp_shut, __ATOMIC_ACQUIRE))) cp_enter_slowly(t, seq);
  *leave = seq + 2;
  return t;
}

static inline void cp_leave(struct cp_thread *t, uint64_t leave) {
  if (CP_LIKELY(t != NULL)) __atomic_store_n(&t->seq, leave, __ATOMIC_RELEASE);
}

static inline uint32_t cp_stream_bit(CUstream stream) {
  return (uint32_t)((uintptr_t)stream * 0x9e3779b97f4a7c15ull >> 32) % CP_STREAM_BITS;
}

static inline void cp_work_on(CUstream stream) {
  uint64_t bit = 1ull << cp_stream_bit(stream) % 64, *word = &cp_worked[cp_stream_bit(stream) / 64];
  if (CP_UNLIKELY(!(cp_relaxed(word) & bit))) __atomic_or_fetch(word, bit, __ATOMIC_SEQ_CST);
}
/* NULL, after all streams of the list. */
static inline CUstream cp_work_on_all(const CUDA_LAUNCH_PARAMS *list, unsigned int count) {
  for (unsigned int i = 0; list && i < count; i++) cp_work_on(list[i].hStream);
  return NULL;
}

static inline void cp_note_stream(struct cp_thread *t, CUstream stream, uint32_t own) {
  cp_work_on(stream);
  if (CP_UNLIKELY(!t)) return;
  if (own && !stream) stream = CU_STREAM_PER_THREAD;
  t->stream = stream;
  if (CP_UNLIKELY(stream == CU_STREAM_PER_THREAD) && !cp_relaxed(&cp_own_streams)) cp_store(&cp_own_streams, 1);
}

/* cuda/turn/turn.c */
extern CP_HIDDEN const struct cp_backend cp_cuda_backend;
/* Ask until it is true, once at least, for so long (microseconds). */
bool cp_until(bool (*ask)(void), uint64_t begin, uint64_t limit);

/* gate.c */
void cp_shut_bit(uint32_t bit, bool on);
void cp_cuda_barrier(void);
/* As the backend's hooks of these names. */
int cp_cuda_attach(const struct cp_packet *setup, const int *files, int count);
void cp_cuda_attached(void);
void cp_cuda_pending(void);
void cp_cuda_before_fork(void);
void cp_cuda_after_fork(bool child);
void cp_cuda_in_child(void); /* forked_children.c */
void cp_cuda_claim(void); /* the first use of a process that is pending */
void cp_cuda_anew(void); /* a child that may use the device: no other threads, nothing known of its use */
void cp_traits(uint32_t traits);
void cp_passes(const char *name); /* an unknown form of a hooked call was asked for */
uint64_t cp_cuda_calls(bool *in_flight);
void cp_cuda_check_use(void); /* does the process use the driver beside the gate? */

/* cuda/turn/run_ahead.c */
void cp_ahead_boundary(void); /* the turn is held, another job waits for it */
void cp_ahead_wait(void);
void cp_ahead_forget(void);            /* the turn has ended */
void cp_ahead_drop(CUcontext context); /* it is about to go.  Books' lock held */

/* cuda/turn/backlog.c */
void cp_backlog_wait(void);  /* before a call that submits; not in flight */
void cp_backlog_bound(void); /* the seat says how much may be under way */
void cp_backlog_forget(void);            /* the turn has ended */
void cp_backlog_drop(CUcontext context); /* it is about to go.  Books' lock held */

/* forked_children.c */
void cp_forks_watch(void);   /* forks of this process may come to use the device */
void cp_driver_begins(void); /* it has been initialised: some processes attach by themselves */

/* visible_devices.c */
void cp_see_own_devices(void); /* before the driver is initialised */
bool cp_sees_several(void);    /* the job has been given several */

/* cuda/turn/streams.c */
extern CP_HIDDEN uint32_t cp_driver_used; /* cuInit has come through the gate */
bool cp_capturing(void);
bool cp_knows_stream(CUstream stream); /* books' lock held */
CUstreamCaptureMode cp_relax(void); /* our own calls disturb no capture of this thread's, nor are they refused for one */
void cp_unrelax(CUstreamCaptureMode mode);
/* cuda/turn/drain.c.  Helper thread, gate shut, no call in flight, no capture: has everything ended that was
 * submitted? */
void cp_drain_begin(void);
bool cp_drained(void);
void cp_drain_stop(void); /* at exit */

/* nccl.c, as for the driver */
void *cp_nccl_swap(const char *name, void *pointer);
/* cuda/memory/allocator_cache.c */
bool cp_malloc_ours(const void *pointer); /* our cudaMalloc? */
/* cuda/memory/driver_memory.c */
void cp_memory_tell(void); /* the seat is there */
/* cuda/memory/caller.c */
bool cp_from_allocator(const void *caller); /* is it PyTorch's caching allocator, perhaps through the runtime? */
#endif
