/* Folder cuda/turn/: when a turn on a GPU begins and ends: the streams that have to be drained, and how far a job may run
 * ahead of its device.  What submits work, or asks whether it has ended, enters; what becomes of memory does not.
 * May include: cuda, cuda/memory, weights. */
/* The books: what the process has made at the driver, as far as it matters for draining. */
#ifndef CARPOOL_CUDA_BOOKS_H
#define CARPOOL_CUDA_BOOKS_H
#include "cuda/gate.h"

#define MOST_CONTEXTS 64
#define MOST_STREAMS 4096
#define MOST_TAILS 256
#define MOST_CAPTURES 256
#define NO_DEVICE (-1)

struct cp_context {
  CUcontext context;
  CUdevice device; /* of a primary context; otherwise NO_DEVICE */
  CUevent event;   /* behind everything in its blocking streams, if recorded */
  bool recorded;
};
struct cp_stream {
  CUstream stream;
  CUcontext context;
  bool busy; /* has got work since it was last found empty.  Of the helper thread */
};
/* The end of what a destroyed stream had still to do. */
struct cp_tail {
  CUevent event;
  CUcontext context;
};
struct cp_capture {
  CUstream stream;
  struct cp_thread *thread; /* of a per-thread default stream */
};

struct cp_books {
  struct cp_lock lock;
  struct cp_context contexts[MOST_CONTEXTS];
  struct cp_stream streams[MOST_STREAMS];
  struct cp_tail tails[MOST_TAILS];
  struct cp_capture captures[MOST_CAPTURES]; /* by the streams in which they began */
  uint32_t context_count, stream_count, tail_count, capture_count;
  uint32_t goings; /* calls in progress in which a context may go: the helper enters none then */
};
extern CP_HIDDEN struct cp_books cp_books;

/* Lock held.  A stream may be destroyed while it has work to do, which then goes on.  False: try again later. */
bool cp_keep_tail(const struct cp_stream *s);
/* Lock held.  May it be entered? */
bool cp_context_usable(const struct cp_context *c);
extern CP_HIDDEN bool cp_drain_stopped; /* the process is about to end.  Lock held */
#endif
