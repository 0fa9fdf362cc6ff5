/* Graphs.  An instantiated graph is one block of ops in the order in which its nodes were added, which is an order that
 * their dependencies allow; a launch is one piece of work that runs them one after the other. */
#include "stub.h"

struct CUgraphExec_st {
  struct stub_kept *kept;
  size_t count, bytes;
  CUgraphNodeType *types;
  unsigned char *block;
};

CUgraph stub_graph_new(void) {
  CUgraph graph = calloc(1, sizeof *graph);
  graph->last = &graph->first;
  return graph;
}

CUgraphNode stub_graph_add(CUgraph graph, CUgraphNodeType type, struct stub_op *op, const CUgraphNode *on, size_t count) {
  CUgraphNode node = calloc(1, sizeof *node);
  *node = (struct CUgraphNode_st){.op = op, .type = type, .depends = count, .on = malloc((count + 1) * sizeof *on)};
  for (size_t i = 0; i < count; i++) {
    node->on[i] = on[i];
    on[i]->dependents++;
  }
  *graph->last = node;
  graph->last = &node->next;
  graph->count++;
  return node;
}

void stub_graph_free(CUgraph graph) {
  for (CUgraphNode node = graph->first, next; node; node = next) {
    next = node->next;
    stub_op_free(node->op);
    free(node->on);
    free(node);
  }
  stub_keep_no_more(&graph->kept);
  free(graph);
}

CUresult cuGraphCreate(CUgraph *graph, unsigned int flags) {
  ENTER(cuGraphCreate);
  if (!graph || flags) return CUDA_ERROR_INVALID_VALUE;
  *graph = stub_graph_new();
  return CUDA_SUCCESS;
}
CUresult cuGraphDestroy(CUgraph graph) {
  ENTER(cuGraphDestroy);
  if (!graph) return CUDA_ERROR_INVALID_VALUE;
  stub_graph_free(graph);
  return CUDA_SUCCESS;
}

CUresult cuGraphClone(CUgraph *clone, CUgraph graph) {
  ENTER(cuGraphClone);
  if (!clone || !graph) return CUDA_ERROR_INVALID_VALUE;
  CUgraph copy = *clone = stub_graph_new();
  for (CUgraphNode node = graph->first; node; node = node->next) { /* order is kept, so edges need not be */
    CUgraphNode before = NULL;
    for (CUgraphNode at = copy->first; at; at = at->next) before = at;
    stub_graph_add(copy, node->type, node->op ? stub_op_copy(node->op) : NULL, &before, before != NULL);
  }
  stub_keep_too(&copy->kept, graph->kept);
  return CUDA_SUCCESS;
}

CUresult cuGraphAddEmptyNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count) {
  ENTER(cuGraphAddEmptyNode);
  *node = stub_graph_add(graph, CU_GRAPH_NODE_TYPE_EMPTY, NULL, dependencies, count);
  return CUDA_SUCCESS;
}
CUresult cuGraphAddKernelNode_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                                 const CUDA_KERNEL_NODE_PARAMS *params) {
  ENTER(cuGraphAddKernelNode_v2);
  CUresult result;
  struct stub_op *op = stub_kernel_op(params->func, params->kernelParams, params->extra, &result);
  if (!result) *node = stub_graph_add(graph, CU_GRAPH_NODE_TYPE_KERNEL, op, dependencies, count);
  return result;
}
CUresult cuGraphAddMemcpyNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                              const CUDA_MEMCPY3D *params, CUcontext context) {
  ENTER(cuGraphAddMemcpyNode);
  (void)context;
  CUresult result;
  struct stub_op *op = stub_copy3d_op(params, &result);
  if (!result) *node = stub_graph_add(graph, CU_GRAPH_NODE_TYPE_MEMCPY, op, dependencies, count);
  return result;
}
CUresult cuGraphAddMemsetNode(CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count,
                              const CUDA_MEMSET_NODE_PARAMS *params, CUcontext context) {
  ENTER(cuGraphAddMemsetNode);
  (void)context;
  struct stub_op *op =
    stub_fill_op(params->dst, params->pitch, params->value, params->elementSize, params->width, params->height);
  *node = stub_graph_add(graph, CU_GRAPH_NODE_TYPE_MEMSET, op, dependencies, count);
  return CUDA_SUCCESS;
}

static size_t size_of(const struct stub_op *op) { return stub_round(sizeof *op + op->bytes, 16); }

static void fill(CUgraphExec exec, CUgraph graph) {
  *exec = (struct CUgraphExec_st){.types = malloc((graph->count + 1) * sizeof *exec->types)};
  stub_keep_too(&exec->kept, graph->kept);
  for (CUgraphNode node = graph->first; node; node = node->next) {
    exec->types[exec->count++] = node->type;
    if (node->op) exec->bytes += size_of(node->op);
  }
  unsigned char *at = exec->block = calloc(1, exec->bytes + 1);
  for (CUgraphNode node = graph->first; node; node = node->next) {
    if (!node->op) continue;
    memcpy(at, node->op, sizeof *node->op + node->op->bytes);
    ((struct stub_op *)at)->owned = NULL;
    at += size_of(node->op);
  }
}

static void drop(CUgraphExec exec) {
  stub_keep_no_more(&exec->kept);
  free(exec->types);
  free(exec->block);
}

struct launch { size_t bytes, unused; unsigned char block[]; };
static CUresult run(void *payload) {
  struct launch *launch = payload;
  CUresult result = CUDA_SUCCESS;
  for (size_t at = 0; at < launch->bytes && !result;) {
    struct stub_op *op = (struct stub_op *)(launch->block + at);
    if (op->run) result = op->run(op->payload);
    at += size_of(op);
  }
  return result;
}

STREAM_CALL(cuGraphLaunch, (exec, stream), CUgraphExec exec, CUstream stream) {
  if (!exec) return CUDA_ERROR_INVALID_VALUE;
  size_t bytes = sizeof(struct launch) + exec->bytes;
  struct launch *launch = malloc(bytes);
  launch->bytes = exec->bytes;
  launch->unused = 0;
  memcpy(launch->block, exec->block, exec->bytes);
  struct stub_op *op = stub_op(CU_GRAPH_NODE_TYPE_GRAPH, run, launch, bytes);
  free(launch);
  return stub_submit(stream, op);
}
STREAM_CALL(cuGraphUpload, (exec, stream), CUgraphExec exec, CUstream stream) {
  if (!exec) return CUDA_ERROR_INVALID_VALUE;
  return stub_submit(stream, stub_op(CU_GRAPH_NODE_TYPE_EMPTY, NULL, NULL, 0));
}

static CUresult instantiate(CUgraphExec *exec, CUgraph graph) {
  if (!exec || !graph) return CUDA_ERROR_INVALID_VALUE;
  *exec = calloc(1, sizeof **exec);
  fill(*exec, graph);
  return CUDA_SUCCESS;
}
CUresult cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph graph, unsigned long long flags) {
  ENTER(cuGraphInstantiateWithFlags);
  return flags > 15 ? CUDA_ERROR_INVALID_VALUE : instantiate(exec, graph);
}
CUresult cuGraphInstantiate_v2(CUgraphExec *exec, CUgraph graph, CUgraphNode *error_node, char *log, size_t bytes) {
  ENTER(cuGraphInstantiate_v2);
  if (error_node) *error_node = NULL;
  if (log && bytes) *log = 0;
  return instantiate(exec, graph);
}
FORWARD(cuGraphInstantiate, cuGraphInstantiate_v2, (exec, graph, error_node, log, bytes), CUgraphExec *exec, CUgraph graph,
        CUgraphNode *error_node, char *log, size_t bytes)

static CUresult with_params(CUgraphExec *exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params) {
  CUresult result = params ? instantiate(exec, graph) : CUDA_ERROR_INVALID_VALUE;
  if (!params) return result;
  params->hErrNode_out = NULL;
  params->result_out = result ? CUDA_GRAPH_INSTANTIATE_ERROR : CUDA_GRAPH_INSTANTIATE_SUCCESS;
  return result;
}
CUresult cuGraphInstantiateWithParams(CUgraphExec *exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params) {
  ENTER(cuGraphInstantiateWithParams);
  return with_params(exec, graph, params);
}
CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec *exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params) {
  ENTER(cuGraphInstantiateWithParams_ptsz);
  return with_params(exec, graph, params);
}

CUresult cuGraphExecDestroy(CUgraphExec exec) {
  ENTER(cuGraphExecDestroy);
  if (!exec) return CUDA_ERROR_INVALID_VALUE;
  drop(exec);
  free(exec);
  return CUDA_SUCCESS;
}

static bool same_shape(CUgraphExec exec, CUgraph graph) {
  size_t i = 0;
  for (CUgraphNode node = graph->first; node; node = node->next, i++)
    if (i >= exec->count || exec->types[i] != node->type) return false;
  return i == exec->count;
}
CUresult cuGraphExecUpdate_v2(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *result) {
  ENTER(cuGraphExecUpdate_v2);
  if (!exec || !graph || !result) return CUDA_ERROR_INVALID_VALUE;
  *result = (CUgraphExecUpdateResultInfo){.result = CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED};
  if (!same_shape(exec, graph)) return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
  drop(exec);
  fill(exec, graph);
  result->result = CU_GRAPH_EXEC_UPDATE_SUCCESS;
  return CUDA_SUCCESS;
}
CUresult cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode *error_node, CUgraphExecUpdateResult *result) {
  ENTER(cuGraphExecUpdate);
  CUgraphExecUpdateResultInfo info = {.result = CU_GRAPH_EXEC_UPDATE_ERROR};
  CUresult status = cuGraphExecUpdate_v2(exec, graph, &info);
  if (error_node) *error_node = NULL;
  if (result) *result = info.result;
  return status;
}
