/* cuDNN's graphs of operations: descriptors are bags of attributes.  What callers have set they can read again; what the
 * library finds out itself is answered here: one engine, without knobs and notes. */
#include "cudnn.h"

enum {
  HEURISTIC_RESULTS = 202,
  CONFIGURED_ENGINE = 300,
  INTERMEDIATE_INFO = 301,
  KNOB_CHOICES = 302,
  PLAN_WORKSPACE_SIZE = 402,
  GRAPH_ENGINE_COUNT = 802,
  ENGINE_INDEX = 1301,
  ENGINE_KNOBS = 1302,
  ENGINE_NUMERICAL_NOTES = 1303,
  ENGINE_LAYOUTS = 1304,
  ENGINE_BEHAVIOR_NOTES = 1305,
};

struct attribute {
  int name;
  int64_t count;
  struct attribute *next;
  char values[];
};
struct descriptor { struct attribute *first; };

/* Bytes of an element; most types are enumerations. */
static size_t type_bytes(int type) {
  switch (type) {
    case 2: case 24: return 1;                           /* truth values, characters */
    case 0: case 3: case 5: case 6: case 15: return 8;   /* handles, 64-bit numbers, pointers, descriptors */
    case 26: return 16;                                  /* fractions */
    default: return 4;
  }
}

static void drop(struct attribute **link) {
  struct attribute *gone = *link;
  *link = gone->next;
  free(gone);
}
static struct attribute **find(struct descriptor *descriptor, int name) {
  struct attribute **link = &descriptor->first;
  while (*link && (*link)->name != name) link = &(*link)->next;
  return link;
}

EXPORT enum status cudnnBackendCreateDescriptor(int kind, struct descriptor **descriptor) {
  (void)kind;
  if (!descriptor) return BAD_PARAMETER;
  *descriptor = calloc(1, sizeof **descriptor);
  return SUCCESS;
}
EXPORT enum status cudnnBackendDestroyDescriptor(struct descriptor *descriptor) {
  while (descriptor && descriptor->first) drop(&descriptor->first);
  free(descriptor);
  return SUCCESS;
}
EXPORT enum status cudnnBackendFinalize(struct descriptor *descriptor) { return descriptor ? SUCCESS : BAD_PARAMETER; }

EXPORT enum status cudnnBackendSetAttribute(struct descriptor *descriptor, int name, int type, int64_t count,
                                            const void *values) {
  if (!descriptor || count < 0 || (count && !values)) return BAD_PARAMETER;
  struct attribute **link = find(descriptor, name);
  if (*link) drop(link);
  size_t bytes = (size_t)count * type_bytes(type);
  struct attribute *made = malloc(sizeof *made + bytes);
  *made = (struct attribute){name, count, descriptor->first};
  if (bytes) memcpy(made->values, values, bytes);
  descriptor->first = made;
  return SUCCESS;
}

static enum status answer(int type, int64_t asked, int64_t *count, void *to, int64_t there, const void *values) {
  int64_t copied = asked < there ? asked : there;
  if (count) *count = there;
  if (to && values && copied > 0) memcpy(to, values, (size_t)copied * type_bytes(type));
  return SUCCESS;
}

EXPORT enum status cudnnBackendGetAttribute(struct descriptor *descriptor, int name, int type, int64_t asked, int64_t *count,
                                            void *values) {
  static const int64_t zero = 0, one = 1, workspace = WORKSPACE;
  if (!descriptor) return BAD_PARAMETER;
  struct attribute *set = *find(descriptor, name);
  if (set) return answer(type, asked, count, values, set->count, set->values);
  switch (name) {
    case PLAN_WORKSPACE_SIZE: return answer(type, asked, count, values, 1, &workspace);
    case GRAPH_ENGINE_COUNT: return answer(type, asked, count, values, 1, &one);
    case ENGINE_INDEX: return answer(type, asked, count, values, 1, &zero);
    /* The caller brings a descriptor to be filled in, and ours has nothing in it. */
    case HEURISTIC_RESULTS:
    case CONFIGURED_ENGINE: return answer(type, asked, count, values, 1, NULL);
    case INTERMEDIATE_INFO:
    case KNOB_CHOICES:
    case ENGINE_KNOBS:
    case ENGINE_NUMERICAL_NOTES:
    case ENGINE_LAYOUTS:
    case ENGINE_BEHAVIOR_NOTES: return answer(type, asked, count, values, 0, NULL);
    default: return emulator_unexpected("cudnnBackendGetAttribute"), answer(type, asked, count, values, 0, NULL), NOT_SUPPORTED;
  }
}
