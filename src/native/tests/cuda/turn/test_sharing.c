/* Two jobs in processes of their own compute in the memory of one lane, at nearly the same offsets, each in its turns.
 * What a job has in it when a turn ends comes back bit for bit; the first one's device buffer has no room for whole
 * segments, so they go to host memory.  Then one is killed in the middle of its turn. */
#include "tests/cuda/turn/two_jobs.h"

#include "cuda/memory/grant.h"

#define ROUNDS 200
#define PIECE (4 * CP_MIB)
#define PIECES 3 /* of the lane, and of each device buffer */
#define BLOCKS 12
#define WORDS 1000ul

void cp_begin_iterations(void);
void cp_live_blocks(const uint64_t *addresses, const uint64_t *bytes, uint64_t count);

/* ---- the daemon and its agent ------------------------------------------------------------------------------------------ */

static int memory[3][PIECES]; /* of the two device buffers, and the lane */

/* The agent makes the memory and ends: descriptors keep it. */
static void agent(int channel) {
  CUmemGenericAllocationHandle handle;
  CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                              .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                              .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
  int fd;
  OK(cuInit(0));
  for (int i = 0; i < 3 * PIECES; i++) {
    OK(cuMemCreate(&handle, PIECE, &prop, 0));
    OK(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    send_packet(channel, (struct cp_packet){0}, fd);
  }
  _exit(0);
}

static void make_all_memory(void) {
  int pair[2], status;
  struct cp_packet p;
  CHECK_THAT(!socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair));
  pid_t pid = fork();
  if (pid == 0) agent(pair[1]);
  cp.fd = pair[0]; /* whose packets the library reads */
  for (int i = 0; i < 3 * PIECES; i++, cp_skip_packet()) {
    cp_peek(&p, &memory[i / PIECES][i % PIECES], true);
    CHECK_THAT(memory[i / PIECES][i % PIECES] >= 0);
  }
  CHECK_THAT(waitpid(pid, &status, 0) == pid && status == 0);
  close(pair[0]);
  close(pair[1]);
}

/* Everything is sent again each time; what a job has already it ignores.  The first job's device buffer has no room to
 * spare. */
static void serve_growth(uint32_t slot, int channel, const struct cp_packet *p) {
  if (p->type != CP_GROW) return;
  uint64_t pieces = p->a || slot ? PIECES : 1;
  for (uint64_t i = 0; i < pieces; i++) {
    struct cp_packet extent = {.type = CP_EXTENT, .a = 0, .b = p->a, .c = i * PIECE, .d = PIECE};
    send_packet(channel, extent, memory[p->a ? 2 : slot][i]);
  }
  struct cp_seat *s = seat_of(slot);
  bool fits = p->b <= pieces * PIECE;
  if (fits) cp_store(p->a ? &s->e_limit : &s->p_limit, p->a || slot ? pieces * PIECE : p->b);
  cp_store(&s->grow_status, fits ? CP_GROW_GRANTED : CP_GROW_DENIED);
  cp_store(&s->grow_ack, (uint32_t)p->c);
  cp_futex_wake(&s->grow_ack);
}

/* ---- a job ------------------------------------------------------------------------------------------------------------- */

struct block {
  CUdeviceptr at;
  uint64_t expected[WORDS];
};
static struct block blocks[BLOCKS], weights;

static void mix_block(struct block *b, CUstream stream, uint64_t seed) {
  uint64_t count = WORDS;
  OK(cuLaunchKernel(mix, 1, 1, 1, 1, 1, 1, 0, stream, (void *[]){&b->at, &count, &seed}, NULL));
  mix_words(b->expected, count, seed);
}

static void check_block(const struct block *b, CUstream stream) {
  static uint64_t got[WORDS];
  OK(cuMemcpyDtoHAsync_v2(got, b->at, sizeof got, stream));
  OK(cuStreamSynchronize(stream));
  CHECK_THAT(!memcmp(got, b->expected, sizeof got));
}

static void list_blocks(uint64_t seed) {
  uint64_t address[BLOCKS], bytes[BLOCKS];
  for (int i = 0; i < BLOCKS; i++) address[i] = blocks[i].at, bytes[i] = sizeof blocks[i].expected;
  cp_live_blocks(address, bytes, seed % 4 ? BLOCKS : UINT64_MAX);
}

static void make_blocks(CUstream stream) {
  CUdeviceptr segments[2];
  OK(cuMemAlloc_v2(&weights.at, sizeof weights.expected));
  cp_begin_iterations();
  OK(cp_segment_alloc(&segments[0], 7 * CP_MIB, true));
  OK(cp_segment_alloc(&segments[1], 3 * CP_MIB, true));
  for (uint64_t i = 0; i < BLOCKS; i++) {
    blocks[i].at = segments[i % 2] + i * (CP_MIB / 4) + 512 * me; /* nearly the other's */
    OK(cuMemsetD8Async(blocks[i].at, 0, sizeof blocks[i].expected, stream));
  }
  OK(cuMemsetD8Async(weights.at, 0, sizeof weights.expected, stream));
}

static void job(bool for_ever) {
  CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
  meet();
  make_blocks(stream);
  for (uint64_t seed = 1; seed <= ROUNDS || for_ever || !enough(); seed++) {
    for (int i = 0; i < BLOCKS; i++) mix_block(&blocks[i], stream, seed + me);
    mix_block(&weights, stream, seed);
    OK(cuLaunchHostFunc(stream, check_alone, NULL));
    if (seed % 8 == 0) check_block(&blocks[seed / 8 % BLOCKS], stream);
    if (cp_step_end(0, seed == 1)) list_blocks(seed);
    if (seed >= ROUNDS / 2 && enough()) cp_store(&shared->ended[me], 1);
  }
  for (int i = 0; i < BLOCKS; i++) check_block(&blocks[i], stream);
  check_block(&weights, stream);
  CHECK_THAT(seat_of(me)->residue_total > 0);
  finish();
}

int main(void) {
  alarm(110);
  whole = 0;
  serve_job = serve_growth;
  make_all_memory();
  prepare();
  both_run(job, false);
  both_run(job, true);
  return 0;
}
