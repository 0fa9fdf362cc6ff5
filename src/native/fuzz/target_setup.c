/* The answer to HELLO: what the daemon sends to a process that attaches, or to the one before it, with any numbers, any
 * files, and a seat table whose header and limits may say anything. */
#include "fuzz/job.h"

#include "base/libc.c"
#include "job/attach.c"

int cp_signals_start(void) { return 0; }
int cp_helper_start(void) { return 0; }
bool cp_groups_any_dropped(void) { return false; }
bool cp_groups_moved(uint64_t key, int device) { return (void)key, (void)device, true; }
static void others_write(void) { give_up(); }

static int seat_table(struct input *in) {
  uint32_t wrong = draw_below(in, 8);
  struct cp_board_header header = {CP_BOARD_MAGIC, CP_PROTOCOL, draw_below(in, 3)};
  int fd = file_of(wrong == 1 ? (off_t)draw(in, 2) : CP_BOARD_HEADER + CP_SEATS * (off_t)sizeof(struct cp_seat));
  if (wrong == 2) header.magic = (uint32_t)draw(in, 4);
  if (wrong == 3) header.protocol = (uint32_t)draw(in, 4);
  uint64_t limits[2] = {draw(in, 8), draw(in, 8)};
  pwrite(fd, limits, sizeof limits, CP_BOARD_HEADER + offsetof(struct cp_seat, p_limit));
  CHECK_THAT(pwrite(fd, &header, sizeof header, 0) == sizeof header);
  return fd;
}

static uint64_t window(struct input *in) {
  static const uint64_t some[] = {CP_GIB, 2 * CP_GIB, 0, CP_GIB + 1, 1ull << 40, 1ull << 59, 1ull << 60, 1ull << 63};
  uint32_t i = draw_below(in, 16);
  return i < 8 ? some[i] : i == 8 ? draw(in, 8) : CP_GIB;
}

/* What the job has to make of an answer. */
enum { PASSES = 0, /* it was for an earlier process */ ATTACHES, ANYTHING };

static int meaning(const struct cp_packet *p, const int *fds, uint32_t count) {
  if (is_late(p->type)) return PASSES;
  if (p->type != CP_SETUP || count != 4 || p->a >= CP_SEATS || p->b != CP_GIB) return ANYTHING;
  struct cp_board_header header;
  bool right = cp_has_bytes(fds[0], TABLE_BYTES) && pread(fds[0], &header, sizeof header, 0) == sizeof header &&
               header.magic == CP_BOARD_MAGIC && header.protocol == CP_PROTOCOL && header.kind < CP_KINDS;
  for (uint32_t i = 1; i < count; i++) right &= cp_has_bytes(fds[i], SPAN + SPAN / CP_CHUNK);
  return right ? ATTACHES : ANYTHING;
}

static int send_answer(struct input *in) {
  static const uint32_t types[] = {CP_SETUP, CP_SETUP, CP_SETUP, CP_REFUSED, CP_LANE, CP_BANK, CP_EXTENT, CP_CUT, CP_WEIGHTS};
  uint32_t type = draw_below(in, 10), count = draw_below(in, 8), size = draw_below(in, 16);
  struct cp_packet p = {.type = type < 9 ? types[type] : (uint32_t)draw(in, 4), .a = draw(in, 1)};
  p.b = p.type == CP_SETUP ? window(in) : draw(in, 1);
  if (p.a == 255) p.a = draw(in, 8);
  p.c = draw(in, 1), p.e = draw(in, 1);
  int fds[8];
  if (count > 4) count = 4;
  for (uint32_t i = 0; i < count; i++) {
    fds[i] = i ? some_file(in) : seat_table(in);
    if (fds[i] < 0) fds[i] = file_of(SPAN + SPAN / CP_CHUNK);
  }
  send_bytes(&p, size == 1 ? draw(in, 1) % sizeof p : sizeof p, fds, count);
  int means = size == 1 ? ANYTHING : meaning(&p, fds, count);
  for (uint32_t i = 0; i < count; i++) close(fds[i]);
  return means;
}

/* What an attached process does first. */
static void use(void) {
  size_t need;
  cp_lower_limits();
  CHECK_THAT(!cp_arenas_recount(&cp.arenas)); /* nothing is in the store */
  char *block = cp_pool_alloc(&cp.arenas.win[0].pool, CP_CHUNK, cp.p_cap, 0, &need);
  if (!block || cp_arenas_open(&cp.arenas)) return;
  *block = 1;
  CHECK_THAT(!cp_arenas_close(&cp.arenas));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  struct input in = {data, size};
  leftovers();
  int means = PASSES;
  char *table;
  open_channel();
  cp.text_count = 1;
  for (uint32_t i = 0; i < 3 && !input_ends(&in); i++) {
    int next = send_answer(&in);
    if (means == PASSES) means = next;
  }
  int result = cp_hello(cp.fd, draw_below(&in, 2));
  CHECK_THAT(result >= -1 && result <= CP_LATER && (result != -1 || *cp_failure));
  CHECK_THAT(!result == !!cp_load(&cp.attached) && (means != ATTACHES || !result));
  if (!result) use();
  table = cp.seat_table;
  forget_job();
  if (table) munmap(table, CP_BOARD_HEADER + CP_SEATS * sizeof(struct cp_seat));
  CHECK_THAT(!leftovers()); /* also where it is not attached */
  return 0;
}
