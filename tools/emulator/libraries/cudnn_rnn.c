/* cuDNN: where the parameters of a recurrent network lie.  They are a module's real weights, in memory of the caller's, so
 * their places are real, too: for each pseudo-layer (a layer in one direction) the matrices of the input, by gate, those of
 * the recurrence, the projection, and the biases in the same order. */
#include "cudnn.h"

enum { LSTM = 2, GRU = 3 };             /* kinds of cells; those before are plain ones */
enum { NO_BIAS = 0, DOUBLE_BIAS = 2 };  /* with a single bias only the input (1) or only the recurrence (3) has one */

struct network { int cell, bias, directions, type, input, hidden, output, layers; };
/* One of a pseudo-layer's parts, in elements of the weights' type. */
struct part { size_t offset; int rows, columns; };

EXPORT enum status cudnnCreateRNNDescriptor(struct network **network) {
  if (!network) return BAD_PARAMETER;
  *network = calloc(1, sizeof **network);
  return SUCCESS;
}
EXPORT enum status cudnnDestroyRNNDescriptor(struct network *network) { return free(network), SUCCESS; }

EXPORT enum status cudnnSetRNNDescriptor_v8(struct network *network, int algorithm, int cell, int bias, int bidirectional,
                                            int input_mode, int type, int precision, int math, int input, int hidden,
                                            int projection, int layers, void *dropout, unsigned flags) {
  (void)algorithm, (void)precision, (void)math, (void)dropout, (void)flags;
  if (!network) return BAD_PARAMETER;
  if (input_mode) return emulator_unexpected("cudnnSetRNNDescriptor_v8 without input matrices"), NOT_SUPPORTED;
  *network = (struct network){cell, bias, bidirectional ? 2 : 1, type, input, hidden, projection, layers};
  return SUCCESS;
}

static int gates(const struct network *network) { return network->cell == LSTM ? 4 : network->cell == GRU ? 3 : 1; }

/* Matrix `id`: the gates of the input, those of the recurrence, the projection if there is one; false: no such matrix. */
static bool matrix(const struct network *network, int layer, int id, struct part *part) {
  int count = gates(network), first = layer < network->directions;
  int width = first ? network->input : network->output * network->directions;
  *part = (struct part){0, network->hidden, id < count ? width : network->output};
  if (id == 2 * count) *part = (struct part){0, network->output, network->hidden};
  return id < 2 * count || (id == 2 * count && network->output != network->hidden);
}

static bool bias(const struct network *network, int id, struct part *part) {
  int count = gates(network), mode = network->bias;
  *part = (struct part){0, network->hidden, 1};
  if (mode == NO_BIAS || id >= 2 * count) return false;
  return mode == DOUBLE_BIAS || (mode == 1) == (id < count);
}

/* Part `id` of a pseudo-layer: its matrices, then its biases.  Parts that the network lacks have no rows. */
static struct part part_at(const struct network *network, int layer, int id) {
  struct part part;
  int matrices = 2 * gates(network) + 1;
  bool there = id < matrices ? matrix(network, layer, id, &part) : bias(network, id - matrices, &part);
  return there ? part : (struct part){0};
}

/* Walks from the beginning to part `id` of the pseudo-layer, which may be the one after the last. */
static struct part find(const struct network *network, int layer, int id) {
  size_t offset = 0;
  int parts = 2 * (2 * gates(network) + 1);
  for (int at = 0; at < layer * parts + id; at++) {
    struct part part = part_at(network, at / parts, at % parts);
    offset += (size_t)part.rows * (size_t)part.columns;
  }
  struct part found = part_at(network, layer, id);
  found.offset = offset;
  return found;
}

EXPORT enum status cudnnGetRNNWeightSpaceSize(void *handle, const struct network *network, size_t *bytes) {
  (void)handle;
  if (!network || !bytes) return BAD_PARAMETER;
  *bytes = find(network, network->layers * network->directions, 0).offset * element_bytes(network->type);
  return SUCCESS;
}

/* A part that the network lacks has the address NULL and a descriptor without dimensions. */
static void tell(const struct network *network, struct part part, void *space, struct shape *shape, void **address) {
  if (shape) describe_matrix(shape, network->type, part.rows, part.columns);
  if (shape && !part.rows) shape->count = 0;
  if (address) *address = part.rows ? (char *)space + part.offset * element_bytes(network->type) : NULL;
}

EXPORT enum status cudnnGetRNNWeightParams(void *handle, const struct network *network, int layer, size_t bytes, void *space,
                                           int id, struct shape *matrix_shape, void **matrix_address,
                                           struct shape *bias_shape, void **bias_address) {
  (void)handle, (void)bytes;
  if (!network || layer < 0 || layer >= network->layers * network->directions) return BAD_PARAMETER;
  int matrices = 2 * gates(network) + 1;
  if (id < 0 || id >= matrices) return BAD_PARAMETER;
  tell(network, find(network, layer, id), space, matrix_shape, matrix_address);
  tell(network, find(network, layer, matrices + id), space, bias_shape, bias_address);
  return SUCCESS;
}
