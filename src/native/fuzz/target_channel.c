/* What comes through the job channel on a host device: packets of any type, size and number, with files of any kind, in any
 * order with the words of the seat that say which of them are due. */
#include "fuzz/job.h"

int cp_hello(int fd, bool uses) { return (void)fd, (void)uses, CP_PLAIN; }
bool cp_groups_any_dropped(void) { return false; }
static uint64_t moved; /* a file that cannot be mapped */
bool cp_groups_moved(uint64_t key, int device) { return (void)key, device != (int)moved; }
static void others_write(void) { give_up(); }

static char board[CP_BOARD_HEADER + sizeof(struct cp_seat)] __attribute__((aligned(4096)));

static void attach(void) {
  open_channel();
  memset(board, 0, sizeof board);
  cp.seat_table = board;
  cp.seat = (struct cp_seat *)(board + CP_BOARD_HEADER);
  CHECK_THAT(!cp_arenas_init(&cp.arenas, CP_GIB, file_of(SPAN), file_of(CP_GIB)));
  cp.attached = 1;
}

static void send_some(struct input *in) {
  static const uint32_t types[] = {CP_LANE, CP_BANK, CP_WEIGHTS, CP_CUT, CP_EXTENT, CP_SETUP, CP_REFUSED};
  struct cp_packet p = {.a = draw(in, 1) % 8, .b = draw(in, 1) % 4, .c = draw(in, 1)};
  uint32_t type = draw_below(in, 8), size = draw_below(in, 16);
  p.type = type < 7 ? types[type] : (uint32_t)draw(in, 4);
  if (p.a == 7) p.a = draw(in, 8);
  int fd = some_file(in);
  send_bytes(&p, size == 1 ? 1 + draw(in, 1) % sizeof p : sizeof p, &fd, fd >= 0);
  if (fd >= 0) close(fd);
}

static void one_step(struct input *in) {
  int file = -1;
  uint64_t key;
  switch (draw_below(in, 8)) {
  case 0: cp_store(&cp.seat->lane, draw(in, 1) % 8); break;
  case 1: cp_store(&cp.seat->bank, draw(in, 1) % 8); break;
  case 2: cp_take_files(); break;
  case 3: cp_weights_news(); break;
  case 4:
    key = draw(in, 1) % 8;
    if (!cp_take_weights(key, &file)) cp_close_fd(&file);
    break;
  case 5:
    moved = draw(in, 1);
    cp_weights_again(draw(in, 1) % 8);
    break;
  default: send_some(in);
  }
  CHECK_THAT(!cp_load(&cp.gate_lock.word) && !cp_section.depth);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static struct input in;
  leftovers();
  in = (struct input){data, size};
  attach();
  if (!setjmp(given_up))
    while (!input_ends(&in)) one_step(&in);
  forget_job();
  CHECK_THAT(leftovers() <= 1); /* a file that could not be used was still ours when the process was given up */
  return 0;
}
