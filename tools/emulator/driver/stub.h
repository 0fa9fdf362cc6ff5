/* What the parts of the stub driver share.  main.c documents what the stub is and how it is configured. */
#ifndef CARPOOL_STUB_H
#define CARPOOL_STUB_H
#include "cuda/driver/driver.h"
#include "machine.h"
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { STUB_DEVICES = MACHINE_DEVICES };
#define STUB_PAGE ((size_t)2 << 20)
static inline size_t stub_round(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

/* main.c: every entry point is counted, may fail on demand, and waits while its process is locked for a checkpoint. */
struct stub_call {
  const char *name;
  uint64_t count;
  struct stub_rule *rule;
  bool known;
  struct stub_call *next;
};
int stub_enter(struct stub_call *call, bool early);
void stub_leave(int *entered);
#define ENTER_AS(entry, early)                                                              \
  static struct stub_call call_ = {.name = #entry};                                         \
  __attribute__((cleanup(stub_leave))) int entered_ = stub_enter(&call_, early);           \
  if (entered_) return (CUresult)entered_
#define ENTER(entry) ENTER_AS(entry, false)
#define ENTER_EARLY(entry) ENTER_AS(entry, true)
/* An older form of a call that behaves like the newer one. */
#define FORWARD(name, newer, args, ...) \
  CUresult name(__VA_ARGS__) { ENTER(name); return newer args; }
/* The two forms of a call with a stream; the body follows.  A null stream has been replaced by what it means. */
#define STREAM_CALL(name, args, ...)                                                       \
  static CUresult name##_on(__VA_ARGS__);                                                  \
  CUresult name(__VA_ARGS__) { ENTER(name); if (!stream) stream = CU_STREAM_LEGACY; return name##_on args; } \
  CUresult name##_ptsz(__VA_ARGS__) { ENTER(name##_ptsz); if (!stream) stream = CU_STREAM_PER_THREAD; return name##_on args; } \
  static CUresult name##_on(__VA_ARGS__)
#define STREAM_FORWARD(name, newer, args, ...) \
  STREAM_CALL(name, args, __VA_ARGS__) { return newer##_on args; }
/* The two forms of a call without a stream: the body gets one. */
#define STUB_LIST(...) __VA_ARGS__
#define DEFAULT_CALL(name, args, ...)                                                      \
  static CUresult name##_on(CUstream stream, __VA_ARGS__);                                 \
  CUresult name(__VA_ARGS__) { ENTER(name); return name##_on(CU_STREAM_LEGACY, STUB_LIST args); } \
  CUresult name##_ptds(__VA_ARGS__) { ENTER(name##_ptds); return name##_on(CU_STREAM_PER_THREAD, STUB_LIST args); } \
  static CUresult name##_on(CUstream stream, __VA_ARGS__)

struct stub_state {
  bool initialized, child;
  int devices;
  struct { int ordinal; size_t bytes; } device[STUB_DEVICES]; /* by visible number: number on the machine, capacity */
  const char *context; /* what a context takes at first, as somebody has said it */
  char directory[MACHINE_PATH];
  pthread_mutex_t lock; /* contexts, streams, events, captures, graphs */
  pthread_cond_t progress; /* a stream has finished a piece of work */
};
extern struct stub_state stub;
static inline void stub_lock(void) { pthread_mutex_lock(&stub.lock); }
static inline void stub_unlock(void) { pthread_mutex_unlock(&stub.lock); }
uint64_t stub_now_ns(void);
/* Opens the gate again, or closes it and waits until no call is under way: false after `timeout_ms` (0: no limit). */
void stub_gate_open(void);
bool stub_gate_close(unsigned timeout_ms);

/* store.c: physical memory.  `device` is the machine's number. */
struct stub_physical {
  int fd, device;
  unsigned handles, maps; /* freed when both are 0 */
  bool shared;            /* exported or imported: a checkpoint refuses */
  size_t bytes;
  char name[64];
  CUmemAllocationProp prop;
  int saved; /* file with its content while a checkpoint holds it, else -1 */
  struct stub_physical *next;
};
enum { STUB_ZERO = 0, STUB_OLD = 0xa5 }; /* content of new memory: none, or what a process before has left there */
CUresult stub_physical_new(int device, size_t bytes, unsigned char content, struct stub_physical **physical);
CUresult stub_physical_import(int fd, struct stub_physical **physical);
CUresult stub_physical_open(const char *name, struct stub_physical **physical);
void stub_physical_drop(struct stub_physical *physical); /* frees it if nothing uses it */
bool stub_physical_valid(const struct stub_physical *physical);
struct stub_physical *stub_physicals(void);
CUresult stub_physical_refill(struct stub_physical *physical); /* a new file for memory that a checkpoint has freed */
void stub_physical_empty(struct stub_physical *physical);
size_t stub_used(int device);

/* ranges.c: what lies where.  The lock is recursive. */
enum stub_kind { STUB_DEVICE, STUB_MAPPED, STUB_POOLED, STUB_IMPORTED, STUB_MANAGED, STUB_HOST, STUB_REGISTERED, STUB_ARRAY, STUB_VARIABLE };
struct stub_range {
  enum stub_kind kind;
  char *base;
  size_t bytes, span; /* asked for, mapped */
  size_t offset;
  int prot; /* of the device's access */
  unsigned flags;
  uint64_t id;
  CUcontext context;
  struct stub_physical *physical;
  CUmemoryPool pool;
  struct stub_range *next;
};
void stub_ranges_lock(void);
void stub_ranges_unlock(void);
struct stub_range *stub_range_find(const void *address);
struct stub_range *stub_range_first(void);
struct stub_range *stub_range_add(enum stub_kind kind, void *base, size_t bytes, size_t span, CUcontext context);
void stub_range_remove(struct stub_range *range);
/* Whether the device may use all of these bytes. */
bool stub_reaches(CUdeviceptr address, size_t bytes, bool write);
/* What work does with as many bytes at several places, piece by piece: the program may unmap them meanwhile. */
struct stub_access { const void *address; bool write, host; };
typedef void stub_act(void *argument, size_t at, size_t bytes);
CUresult stub_by_pieces(const struct stub_access *places, unsigned count, size_t bytes, stub_act *act, void *argument);
CUresult stub_range_map(struct stub_range *range, int prot);
CUresult stub_device_alloc(CUcontext context, enum stub_kind kind, size_t bytes, struct stub_range **range);
void stub_device_free(struct stub_range *range);

/* pin.c: false where there is no page, or none with this access. */
bool stub_pin(char *memory, size_t bytes, bool write);

/* context.c */
enum { STUB_CONTEXT_PARTS = 3 };
struct CUctx_st {
  int device; /* visible number */
  unsigned flags;
  bool primary, destroyed;
  int retained;
  uint64_t id;
  CUresult error; /* of a submission that went wrong: every later call returns it */
  CUstream legacy, streams;
  struct stub_physical *overhead[STUB_CONTEXT_PARTS];
  int parts; /* of them that are there */
  CUcontext next;
};
CUresult stub_current(CUcontext *context); /* the error of a broken context */
CUcontext stub_contexts(void);
bool stub_context_valid(CUcontext context);
CUresult stub_context_drain(CUcontext context);
CUresult stub_context_grow(CUcontext context); /* a module has been loaded */

/* stream.c.  An op is one piece of work; it must be repeatable, because graphs run it many times. */
struct stub_op {
  CUresult (*run)(void *payload);
  bool (*arrived)(const void *payload, CUresult *result); /* of a wait: whether what it waits for is there; asked again and again */
  CUgraphNodeType type;
  size_t bytes;
  void *owned; /* freed with the op */
  unsigned char payload[] __attribute__((aligned(16)));
};
struct stub_mark { /* what an event waits for */
  unsigned refs;
  bool done;
  uint64_t done_ns;
  CUcontext context;
};
struct stub_wait {
  CUstream stream;
  uint64_t seq;
  struct stub_mark *mark;
};
struct stub_work {
  struct stub_work *next;
  uint64_t seq;
  struct stub_op *op;
  struct stub_mark *mark;
  unsigned waits;
  struct stub_wait wait[];
};
struct CUstream_st {
  CUcontext context;
  unsigned flags;
  int priority;
  bool destroyed, started, is_legacy;
  bool running; /* the first work, without the lock */
  uint64_t id, submitted, done;
  pthread_cond_t wake;
  struct stub_work *head, **tail;
  struct stub_capture *capture;
  CUgraphNode *after; /* capture: what the next node depends on */
  size_t after_count;
  CUstream next;
};
struct stub_op *stub_op(CUgraphNodeType type, CUresult (*run)(void *), const void *payload, size_t bytes);
struct stub_op *stub_op_copy(const struct stub_op *op);
void stub_op_free(struct stub_op *op);
CUresult stub_stream(CUstream handle, CUstream *stream); /* resolves the default streams */
CUresult stub_submit(CUstream handle, struct stub_op *op); /* takes the op, also when it fails */
CUresult stub_submit_wait(CUstream handle, struct stub_op *op); /* and waits until it has run */
CUresult stub_stream_drain(CUstream stream);
CUstream stub_stream_new(CUcontext context, unsigned flags, int priority);
void stub_enqueue(CUstream stream, struct stub_op *op, struct stub_mark *wait, struct stub_mark *mark); /* stub.lock held */
void stub_wait_for_room(CUstream stream);                                             /* stub.lock held */
void stub_mark_drop(struct stub_mark *mark);                                          /* stub.lock held */

/* capture.c.  All with stub.lock held, except where said. */
struct stub_capture {
  CUstreamCaptureMode mode;
  pthread_t thread;
  bool invalid;
  uint64_t id;
  CUstream origin;
  CUgraph graph;
  struct stub_capture *next;
};
bool stub_capturing(CUcontext context, bool blocking_only, bool invalidate);
CUresult stub_capture_add(CUstream stream, struct stub_op *op);
CUresult stub_capture_join(CUstream stream, struct stub_capture *capture, CUgraphNode *nodes, size_t count);
CUresult stub_unsafe(void); /* 900 where a capture forbids the call; takes the lock itself */
void stub_capture_invalidate(struct stub_capture *capture);
bool stub_capture_live(const struct stub_capture *capture);

/* graph.c */
struct CUgraphNode_st {
  struct stub_op *op; /* NULL: does nothing */
  CUgraphNodeType type;
  size_t depends;
  CUgraphNode *on;
  unsigned dependents;
  CUgraphNode next;
};
struct stub_kept;
struct CUgraph_st {
  CUgraphNode first, *last;
  size_t count;
  struct stub_kept *kept; /* its user objects */
};
CUgraphNode stub_graph_add(CUgraph graph, CUgraphNodeType type, struct stub_op *op, const CUgraphNode *on, size_t count);
CUgraph stub_graph_new(void);
void stub_graph_free(CUgraph graph);
/* userobject.c */
void stub_keep_too(struct stub_kept **kept, const struct stub_kept *of);
void stub_keep_no_more(struct stub_kept **kept);

/* devices.c, attributes.c, pool.c, kernel.c, null_kernel.c, array.c, checkpoint.c */
int stub_attribute(int attribute); /* a CUdevice_attribute that all devices have alike; 0: not offered */
void stub_pools_trim(void);
bool stub_pool_forget(struct stub_range *range); /* before its memory is freed; false: it is not in use */
struct stub_op *stub_kernel_op(CUfunction function, void **params, void **extra, CUresult *result);
struct stub_op *stub_copy3d_op(const CUDA_MEMCPY3D *copy, CUresult *result);
struct stub_op *stub_fill_op(CUdeviceptr to, size_t pitch, unsigned value, unsigned element, size_t width, size_t height);
void stub_read_kernel_time(void);
void stub_checkpoint_serve(void);
#endif
