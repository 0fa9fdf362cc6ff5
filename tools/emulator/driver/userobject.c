/* User objects: what graphs keep on the host.  One is destroyed with its last reference, by whoever gives that back; the
 * vendor's driver does so in a thread of its own, and not before launches of the graph are over. */
#include "extra.h"
#include "stub.h"

struct CUuserObject_st {
  void *pointer;
  CUhostFn destroy;
  unsigned references;
};
struct stub_kept {
  CUuserObject object;
  unsigned references;
  struct stub_kept *next;
};

static void take(CUuserObject object, unsigned references) {
  __atomic_add_fetch(&object->references, references, __ATOMIC_RELAXED);
}
static void give_back(CUuserObject object, unsigned references) {
  if (__atomic_sub_fetch(&object->references, references, __ATOMIC_ACQ_REL)) return;
  object->destroy(object->pointer);
  free(object);
}
static void keep(struct stub_kept **kept, CUuserObject object, unsigned references) {
  struct stub_kept *one = malloc(sizeof *one);
  *one = (struct stub_kept){object, references, *kept};
  *kept = one;
}
void stub_keep_too(struct stub_kept **kept, const struct stub_kept *of) {
  for (; of; of = of->next) {
    take(of->object, of->references);
    keep(kept, of->object, of->references);
  }
}
void stub_keep_no_more(struct stub_kept **kept) {
  for (struct stub_kept *one = *kept, *next; one; one = next) {
    next = one->next;
    give_back(one->object, one->references);
    free(one);
  }
  *kept = NULL;
}

CUresult cuUserObjectCreate(CUuserObject *object, void *pointer, CUhostFn destroy, unsigned int references,
                            unsigned int flags) {
  ENTER(cuUserObjectCreate);
  if (!object || !destroy || !references || flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC) return CUDA_ERROR_INVALID_VALUE;
  *object = malloc(sizeof **object);
  **object = (struct CUuserObject_st){pointer, destroy, references};
  return CUDA_SUCCESS;
}
CUresult cuUserObjectRelease(CUuserObject object, unsigned int references) {
  ENTER(cuUserObjectRelease);
  if (!object || !references) return CUDA_ERROR_INVALID_VALUE;
  give_back(object, references);
  return CUDA_SUCCESS;
}
CUresult cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned int references, unsigned int flags) {
  ENTER(cuGraphRetainUserObject);
  if (!graph || !object || !references || flags > CU_GRAPH_USER_OBJECT_MOVE) return CUDA_ERROR_INVALID_VALUE;
  if (flags != CU_GRAPH_USER_OBJECT_MOVE) take(object, references);
  keep(&graph->kept, object, references);
  return CUDA_SUCCESS;
}
