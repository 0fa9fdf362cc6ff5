/* Words of the seat, of the neighbours' seats and of the store's table, at any moment of a job's life: while it computes,
 * waits, hands its turn over, is paused, moves out and comes back, asks for memory and gives it back. */
#include "fuzz/job.h"

static void helper_sleeps(void);
#define cp_futex_wait(word, expected, timeout) helper_sleeps()
#include "job/helper.c"
#undef cp_futex_wait

int cp_hello(int fd, bool uses) { return (void)fd, (void)uses, CP_PLAIN; }
bool cp_groups_any_dropped(void) { return false; }
bool cp_groups_moved(uint64_t key, int device) { return (void)key, (void)device, true; }

#define NEAR 4u /* seats of which the input writes words */
#define BLOCKS 16u
static char *board;
static struct input in;
static jmp_buf asleep;
static char *blocks[BLOCKS];

static _Noreturn void helper_sleeps(void) { longjmp(asleep, 1); }

static uint64_t some_value(void) {
  uint32_t kind = draw_below(&in, 8);
  return kind < 4 ? kind : kind == 4 ? CP_GIB : kind == 5 ? draw(&in, 8) : kind == 6 ? UINT64_MAX : draw(&in, 1) * CP_MIB;
}

/* A word of any seat; the pid and the bell among them. */
static void write_word(void) {
  uint32_t seat = draw_below(&in, 8) ? 0 : draw_below(&in, NEAR), word = draw_below(&in, sizeof(struct cp_seat) / 4);
  uint32_t *at = (uint32_t *)(void *)(board + CP_BOARD_HEADER + seat * sizeof(struct cp_seat)) + word;
  uint64_t value = some_value();
  cp_store(at, (uint32_t)value);
  if (word % 2 == 0 && word + 1 < sizeof(struct cp_seat) / 4) cp_store(at + 1, (uint32_t)(value >> 32));
}

/* The words that decide most. */
static void ask_of_holder(void) {
  uint32_t *words[] = {&cp.seat->turn, &cp.seat->yield, &cp.seat->offload, &cp.seat->successor,
                       &cp.seat->watch, &cp.seat->grow_ack, &cp.seat->grow_status, &cp.seat->pause_seq};
  cp_store(words[draw_below(&in, 8)], draw_below(&in, 6));
}

static void move_seat(void) {
  struct cp_packet p = {.type = draw_below(&in, 2) ? CP_LANE : CP_BANK, .a = draw_below(&in, 4)};
  int fd = file_of(SPAN);
  cp_store(p.type == CP_LANE ? &cp.seat->lane : &cp.seat->bank, p.a);
  send_bytes(&p, sizeof p, &fd, 1);
  close(fd);
}

/* A shim takes a chunk; or says that it has. */
static void take_chunk(void) {
  struct cp_host *h = &cp.arenas.host;
  size_t chunk = draw_below(&in, 8) + draw_below(&in, 2) * CP_GIB / CP_CHUNK;
  if (draw_below(&in, 2)) h->memory[chunk * CP_CHUNK + draw(&in, 2) % CP_CHUNK] = 1;
  h->state[chunk] = (uint8_t)draw_below(&in, 3);
}

static void grant(void) {
  struct cp_seat *s = cp.seat;
  uint64_t bytes = draw(&in, 1) * CP_MIB;
  cp_store(draw_below(&in, 2) ? &s->e_limit : &s->p_limit, bytes);
  cp_store(&s->grow_status, draw_below(&in, 3));
  cp_store(&s->grow_ack, s->grow_seq);
}

/* What the daemon and other processes do, one step of it. */
static void others_write(void) {
  if (input_ends(&in)) give_up();
  switch (draw_below(&in, 8)) {
  case 0: write_word(); break;
  case 1: move_seat(); break;
  case 2: take_chunk(); break;
  case 3: grant(); break;
  case 4: cp_store(&cp.seat->turn, 1); break;
  case 5: cp_store(&cp.seat->bell, cp.seat->bell + 1); break;
  default: ask_of_holder();
  }
}

static void allocate(void) {
  uint32_t persistent = draw_below(&in, 2), i = draw_below(&in, BLOCKS);
  struct cp_pool *p = &cp.arenas.win[persistent ? 0 : cp.arenas.ephemeral].pool;
  size_t bytes = draw(&in, 2) * 256 + 1, need = 0;
  const size_t *cap = persistent ? &cp.p_cap : &cp.e_cap;
  if (blocks[i]) return;
  blocks[i] = cp_pool_alloc(p, bytes, *cap < CP_GIB ? *cap : CP_GIB, (uint32_t)cp.boundary.iterations, &need);
  if (!blocks[i] && need <= CP_GIB) cp_grow(!persistent, need, draw_below(&in, 2));
  cp.allocs++;
}

static void free_block(void) {
  uint32_t i = draw_below(&in, BLOCKS);
  if (!blocks[i]) return;
  CHECK_THAT(cp_pool_free(&cp_arenas_window(&cp.arenas, blocks[i])->pool, blocks[i]));
  blocks[i] = NULL;
  cp.frees++;
}

/* As a thread does that traps: afterwards the memory can be used. */
static void touch(void) {
  volatile char *block = blocks[draw_below(&in, BLOCKS)];
  if (!block) return;
  cp_trap((const void *)(uintptr_t)block);
  if (cp_load(&cp.gate) == CP_OPEN) *block = *block + 1;
}

static void help(void) {
  if (!setjmp(asleep)) helper(NULL);
  cp_is_helper = false;
}

/* An end of an iteration. */
static void finish_iteration(void) {
  uint64_t live = cp.arenas.win[cp.arenas.ephemeral].pool.live;
  bool give_way = cp_boundary_step(&cp.boundary, draw_below(&in, 4), live, cp_now_us());
  if (give_way) cp_turn_end(CP_BY_BOUNDARY);
}

static void one_step(void) {
  switch (draw_below(&in, 12)) {
  case 0: allocate(); break;
  case 1: free_block(); break;
  case 2: touch(); break;
  case 3: touch(); break;
  case 4: cp_turn_end(1 + draw_below(&in, 4)); break;
  case 5: help(); break;
  case 6: finish_iteration(); break;
  default: others_write();
  }
  CHECK_THAT(!cp.gate_lock.word && !cp.pool_lock.word && !cp.grow_lock.word && !cp_section.depth);
  if (!cp_load(&cp.attached)) give_up(); /* it has left its seat */
}

static void attach(void) {
  static char memory[CP_BOARD_HEADER + CP_SEATS * sizeof(struct cp_seat)] __attribute__((aligned(4096)));
  board = memory;
  memset(board, 0, CP_BOARD_HEADER + NEAR * sizeof(struct cp_seat));
  memset(blocks, 0, sizeof blocks);
  open_channel();
  note_channel(cp.fd);
  cp.seat_table = board;
  cp.seat = (struct cp_seat *)(void *)(board + CP_BOARD_HEADER);
  cp.seat->grace_us = 100;
  cp_boundary_init(&cp.boundary);
  CHECK_THAT(!cp_arenas_init(&cp.arenas, CP_GIB, file_of(SPAN), file_of(CP_GIB)));
  CHECK_THAT(!cp_host_init(&cp.arenas.host, SPAN, file_of(SPAN + SPAN / CP_CHUNK)));
  CHECK_THAT(!cp_order_init(&cp.order, cp.arenas.host.chunks));
  cp.seat->p_limit = cp.p_cap = 64 * CP_MIB;
  cp.seat->e_limit = cp.e_cap = 64 * CP_MIB;
  cp_store(&cp.attached, 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  in = (struct input){data, size};
  attach();
  if (!setjmp(given_up))
    while (!input_ends(&in)) one_step();
  for (uint32_t i = 0; i < CP_WINDOWS && cp_load(&cp.attached); i++)
    CHECK_THAT(cp.arenas.win[i].kind == CP_UNUSED || !cp_pool_check(&cp.arenas.win[i].pool));
  forget_job();
  return 0;
}
