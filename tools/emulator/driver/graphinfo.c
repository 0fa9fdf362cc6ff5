/* Questions about graphs. */
#include "extra.h"
#include "stub.h"
#include <stdio.h>

CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode *nodes, size_t *count) {
  ENTER(cuGraphGetNodes);
  if (!graph || !count) return CUDA_ERROR_INVALID_VALUE;
  size_t i = 0;
  for (CUgraphNode node = graph->first; node && nodes && i < *count; node = node->next) nodes[i++] = node;
  *count = nodes ? i : graph->count;
  return CUDA_SUCCESS;
}
CUresult cuGraphNodeGetType(CUgraphNode node, CUgraphNodeType *type) {
  ENTER(cuGraphNodeGetType);
  if (!node || !type) return CUDA_ERROR_INVALID_VALUE;
  *type = node->type;
  return CUDA_SUCCESS;
}

/* Edges have no data here; whoever asks for it gets zeros. */
CUresult cuGraphNodeGetDependencies_v2(CUgraphNode node, CUgraphNode *dependencies, CUgraphEdgeData *edges, size_t *count) {
  ENTER(cuGraphNodeGetDependencies_v2);
  if (!node || !count || (edges && !dependencies)) return CUDA_ERROR_INVALID_VALUE;
  size_t fit = dependencies && *count < node->depends ? *count : node->depends;
  if (dependencies && fit) memcpy(dependencies, node->on, fit * sizeof *node->on);
  if (edges) memset(edges, 0, fit * sizeof *edges);
  *count = fit;
  return CUDA_SUCCESS;
}
FORWARD(cuGraphNodeGetDependencies, cuGraphNodeGetDependencies_v2, (node, dependencies, NULL, count), CUgraphNode node,
        CUgraphNode *dependencies, size_t *count)

static size_t place(CUgraph graph, CUgraphNode node) {
  size_t i = 0;
  for (CUgraphNode at = graph->first; at && at != node; at = at->next) i++;
  return i;
}
static void print(CUgraph graph, FILE *file) {
  fprintf(file, "digraph graph_0 {\n");
  for (CUgraphNode node = graph->first; node; node = node->next) {
    fprintf(file, "  node_%zu [label=\"type %d\"];\n", place(graph, node), (int)node->type);
    for (size_t i = 0; i < node->depends; i++)
      fprintf(file, "  node_%zu -> node_%zu;\n", place(graph, node->on[i]), place(graph, node));
  }
  fprintf(file, "}\n");
}
CUresult cuGraphDebugDotPrint(CUgraph graph, const char *path, unsigned int flags) {
  ENTER(cuGraphDebugDotPrint);
  (void)flags;
  if (!graph || !path) return CUDA_ERROR_INVALID_VALUE;
  FILE *file = fopen(path, "we");
  if (!file) return CUDA_ERROR_OPERATING_SYSTEM;
  print(graph, file);
  return fclose(file) ? CUDA_ERROR_OPERATING_SYSTEM : CUDA_SUCCESS;
}
