/* Stream capture: what is submitted to a capturing stream becomes nodes of a graph.
 *
 * A call that is unsafe while something captures (one that allocates or waits) is refused with error 900 by the rules of
 * cuThreadExchangeStreamCaptureMode, and the captures that forbid it are poisoned: they end with error 901. */
#include "stub.h"

static struct stub_capture *captures;
static uint64_t next_id = 1;
static __thread CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

bool stub_capture_live(const struct stub_capture *capture) {
  struct stub_capture *at = captures;
  while (at && at != capture) at = at->next;
  return at != NULL;
}

void stub_capture_invalidate(struct stub_capture *capture) { capture->invalid = true; }

/* Whether a stream of the context captures (a blocking one); all such captures are poisoned on demand. */
bool stub_capturing(CUcontext context, bool blocking_only, bool invalidate) {
  bool any = false;
  for (CUstream stream = context->streams; stream; stream = stream->next) {
    if (!stream->capture || (blocking_only && stream->flags & CU_STREAM_NON_BLOCKING)) continue;
    any = true;
    if (invalidate) stub_capture_invalidate(stream->capture);
  }
  return any;
}

static bool forbids(const struct stub_capture *capture) {
  if (thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED || capture->mode == CU_STREAM_CAPTURE_MODE_RELAXED) return false;
  if (pthread_equal(capture->thread, pthread_self())) return true;
  return thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL && capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
}

CUresult stub_unsafe(void) {
  CUresult result = CUDA_SUCCESS;
  stub_lock();
  for (struct stub_capture *capture = captures; capture; capture = capture->next)
    if (forbids(capture)) {
      stub_capture_invalidate(capture);
      result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
  stub_unlock();
  return result;
}

static void set_after(CUstream stream, const CUgraphNode *nodes, size_t count, bool add) {
  size_t kept = add ? stream->after_count : 0;
  stream->after = realloc(stream->after, (kept + count + 1) * sizeof *nodes);
  for (size_t i = 0; i < count; i++) {
    size_t seen = 0;
    while (seen < kept && stream->after[seen] != nodes[i]) seen++;
    if (seen == kept) stream->after[kept++] = nodes[i];
  }
  stream->after_count = kept;
}

CUresult stub_capture_add(CUstream stream, struct stub_op *op) {
  if (stream->capture->invalid) return stub_op_free(op), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  CUgraphNode node = stub_graph_add(stream->capture->graph, op->type, op, stream->after, stream->after_count);
  set_after(stream, &node, 1, false);
  return CUDA_SUCCESS;
}

CUresult stub_capture_join(CUstream stream, struct stub_capture *capture, CUgraphNode *nodes, size_t count) {
  if (capture->invalid) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (stream->is_legacy) return stub_capture_invalidate(capture), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  if (stream->capture && stream->capture != capture) {
    stub_capture_invalidate(capture);
    stub_capture_invalidate(stream->capture);
    return CUDA_ERROR_STREAM_CAPTURE_MERGE;
  }
  set_after(stream, nodes, count, stream->capture != NULL);
  stream->capture = capture;
  return CUDA_SUCCESS;
}

static CUresult begin(CUstream handle, CUgraph graph, const CUgraphNode *nodes, size_t count, CUstreamCaptureMode mode) {
  CUstream stream;
  CUresult result = stub_stream(handle, &stream);
  if (result) return result;
  if (mode > CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_ERROR_INVALID_VALUE;
  if (stream->is_legacy) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  stub_lock();
  if (stream->capture) {
    stub_unlock();
    return CUDA_ERROR_ILLEGAL_STATE;
  }
  struct stub_capture *capture = calloc(1, sizeof *capture);
  *capture = (struct stub_capture){.mode = mode, .thread = pthread_self(), .id = next_id++, .origin = stream,
                                   .graph = graph ? graph : stub_graph_new(), .next = captures};
  captures = capture;
  stream->capture = capture;
  set_after(stream, nodes, count, false);
  stub_unlock();
  return CUDA_SUCCESS;
}

STREAM_CALL(cuStreamBeginCapture_v2, (stream, mode), CUstream stream, CUstreamCaptureMode mode) {
  return begin(stream, NULL, NULL, 0, mode);
}
STREAM_CALL(cuStreamBeginCapture, (stream), CUstream stream) {
  return begin(stream, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_GLOBAL);
}
STREAM_CALL(cuStreamBeginCaptureToGraph, (stream, graph, dependencies, edges, count, mode), CUstream stream, CUgraph graph,
            const CUgraphNode *dependencies, const CUgraphEdgeData *edges, size_t count, CUstreamCaptureMode mode) {
  (void)edges;
  return graph ? begin(stream, graph, dependencies, count, mode) : CUDA_ERROR_INVALID_VALUE;
}

/* Every last node must be one that the origin waits for. */
static bool joined(const struct stub_capture *capture) {
  size_t leaves = 0, reached = 0;
  for (CUgraphNode node = capture->graph->first; node; node = node->next) leaves += node->dependents == 0;
  for (size_t i = 0; i < capture->origin->after_count; i++) reached += capture->origin->after[i]->dependents == 0;
  return leaves == reached;
}

static void leave(struct stub_capture *capture) {
  struct stub_capture **at = &captures;
  while (*at != capture) at = &(*at)->next;
  *at = capture->next;
  for (CUcontext context = stub_contexts(); context; context = context->next)
    for (CUstream stream = context->streams; stream; stream = stream->next)
      if (stream->capture == capture) {
        stream->capture = NULL;
        free(stream->after);
        stream->after = NULL;
        stream->after_count = 0;
      }
  free(capture);
}

static CUresult end(CUstream stream, CUgraph *graph) {
  struct stub_capture *capture = stream->capture;
  *graph = NULL;
  if (!capture) return CUDA_ERROR_ILLEGAL_STATE;
  if (capture->origin != stream) return stub_capture_invalidate(capture), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
  if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && !pthread_equal(capture->thread, pthread_self()))
    return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
  CUresult result = capture->invalid   ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
                    : !joined(capture) ? CUDA_ERROR_STREAM_CAPTURE_UNJOINED
                                       : CUDA_SUCCESS;
  if (!result) *graph = capture->graph;
  else stub_graph_free(capture->graph);
  leave(capture);
  return result;
}

STREAM_CALL(cuStreamEndCapture, (stream, graph), CUstream stream, CUgraph *graph) {
  CUresult result = stub_stream(stream, &stream);
  if (result) return result;
  if (!graph) return CUDA_ERROR_INVALID_VALUE;
  stub_lock();
  result = end(stream, graph);
  stub_unlock();
  return result;
}

static CUresult ask(CUstream handle, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
                    const CUgraphNode **nodes, size_t *count) {
  CUstream stream;
  CUresult result = stub_stream(handle, &stream);
  if (result) return result;
  stub_lock();
  struct stub_capture *capture = stream->capture;
  if (stream->is_legacy && stub_capturing(stream->context, true, false)) result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  *status = !capture           ? CU_STREAM_CAPTURE_STATUS_NONE
            : capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                               : CU_STREAM_CAPTURE_STATUS_ACTIVE;
  if (capture && id) *id = capture->id;
  if (capture && graph) *graph = capture->graph;
  if (capture && nodes) *nodes = stream->after;
  if (capture && count) *count = stream->after_count;
  stub_unlock();
  return result;
}

STREAM_CALL(cuStreamIsCapturing, (stream, status), CUstream stream, CUstreamCaptureStatus *status) {
  return ask(stream, status, NULL, NULL, NULL, NULL);
}
STREAM_CALL(cuStreamGetCaptureInfo, (stream, status, id), CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id) {
  return ask(stream, status, id, NULL, NULL, NULL);
}
STREAM_CALL(cuStreamGetCaptureInfo_v2, (stream, status, id, graph, dependencies, count), CUstream stream,
            CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph, const CUgraphNode **dependencies, size_t *count) {
  return ask(stream, status, id, graph, dependencies, count);
}
STREAM_CALL(cuStreamGetCaptureInfo_v3, (stream, status, id, graph, dependencies, edges, count), CUstream stream,
            CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph, const CUgraphNode **dependencies,
            const CUgraphEdgeData **edges, size_t *count) {
  if (edges && !dependencies) return CUDA_ERROR_INVALID_VALUE;
  if (edges) *edges = NULL;
  return ask(stream, status, id, graph, dependencies, count);
}

STREAM_CALL(cuStreamUpdateCaptureDependencies_v2, (stream, dependencies, edges, count, flags), CUstream stream,
            CUgraphNode *dependencies, const CUgraphEdgeData *edges, size_t count, unsigned int flags) {
  (void)edges;
  CUresult result = stub_stream(stream, &stream);
  if (result) return result;
  if (flags > 1) return CUDA_ERROR_INVALID_VALUE;
  stub_lock();
  if (!stream->capture) result = CUDA_ERROR_ILLEGAL_STATE;
  else if (stream->capture->invalid) result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  else set_after(stream, dependencies, count, flags == 0);
  stub_unlock();
  return result;
}
STREAM_CALL(cuStreamUpdateCaptureDependencies, (stream, dependencies, count, flags), CUstream stream,
            CUgraphNode *dependencies, size_t count, unsigned int flags) {
  return cuStreamUpdateCaptureDependencies_v2_on(stream, dependencies, NULL, count, flags);
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode) {
  ENTER(cuThreadExchangeStreamCaptureMode);
  if (!mode || *mode > CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_ERROR_INVALID_VALUE;
  CUstreamCaptureMode before = thread_mode;
  thread_mode = *mode;
  *mode = before;
  return CUDA_SUCCESS;
}
