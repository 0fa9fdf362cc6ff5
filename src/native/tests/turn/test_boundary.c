/* Boundaries on scripted sequences of live bytes: the loops that users write. */
#include "tests/check.h"
#include "turn/boundary.c"
uint64_t cp_syscalls;

#define M ((uint64_t)CP_MIB)
static struct cp_boundary b;
static uint64_t live, now, given_at;
static bool asked, given;

/* An allocation is where a turn may be given up; a free only changes what is alive. */
static void allocates(uint64_t bytes) {
  now += 100;
  if (asked && cp_boundary_here(&b, live, now, 20000)) {
    given = true;
    given_at = live;
    asked = false;
    cp_boundary_yielded(&b);
  }
  live += bytes;
  cp_boundary_note(&b, live);
}
static void frees(uint64_t bytes) {
  live -= bytes;
  cp_boundary_note(&b, live);
}
static void steps(uint32_t key) {
  now += 1000;
  if (cp_boundary_step(&b, key, live, now) && asked) {
    given = true;
    given_at = live;
    asked = false;
    cp_boundary_yielded(&b);
  }
}
static void reset(void) {
  cp_boundary_init(&b);
  live = 0;
  now = 1000000;
  asked = given = false;
}

/* forward and backward: activations come and go, 24 MB of gradients stay. */
static void iteration(bool zero_before_forward) {
  allocates(M / 2); /* the batch */
  if (zero_before_forward && b.iterations) frees(24 * M);
  for (int i = 0; i < 10; i++) allocates(3 * M);
  for (int i = 0; i < 6; i++) allocates(4 * M);
  for (int i = 0; i < 10; i++) frees(3 * M);
  steps(0);
  if (!zero_before_forward) frees(24 * M);
  frees(M / 2);
}

static void gives_way_in_the_trough(bool zero_before_forward) {
  reset();
  for (int i = 0; i < 3; i++) iteration(zero_before_forward);
  uint64_t trough = b.learned[0];
  CHECK_THAT(trough <= M / 2 + 1);
  for (int i = 0; i < 4; i++) {
    asked = true;
    given = false;
    iteration(zero_before_forward);
    CHECK_THAT(!asked || i == 0);
  }
  CHECK_THAT(given_at <= trough + trough / 16 + CP_SLACK);
}

static void makes_progress_between_turns(void) {
  reset();
  for (int i = 0; i < 3; i++) iteration(true);
  uint64_t first = b.iterations, turns = 0;
  for (int i = 0; i < 10; i++) {
    asked = true;
    given = false;
    iteration(true);
    turns += given;
  }
  CHECK_THAT(turns <= b.iterations - first + 1 && turns >= 9);
}

static void two_optimizers(void) {
  reset();
  for (int i = 0; i < 12; i++) {
    if (i == 5) asked = true;
    allocates(10 * M);
    steps(0); /* the discriminator: the generated batch stays alive */
    allocates(10 * M);
    steps(1);
    frees(20 * M);
  }
  CHECK_THAT(given && given_at == 0 && b.iterations == 12);
}

static void skipped_steps(void) {
  reset();
  for (int i = 0; i < 12; i++) {
    if (i == 6) asked = true;
    allocates(10 * M);
    if (i % 3) steps(0); /* GradScaler found an infinity: no step, no hook */
    frees(10 * M);
  }
  CHECK_THAT(given && given_at == 0);
}

static void evaluation_without_steps(void) {
  reset();
  for (int i = 0; i < 3; i++) iteration(false);
  live = 7 * M; /* results are kept */
  asked = true;
  for (int batch = 0; batch < 2000 && asked; batch++) {
    allocates(5 * M);
    allocates(5 * M);
    frees(10 * M);
  }
  CHECK_THAT(given && given_at == 7 * M);
}

static void a_loop_that_grows_is_not_asked_for_ever(void) {
  reset();
  for (int i = 0; i < 3; i++) iteration(false);
  asked = true;
  live += 100 * M; /* deeper than anything learned */
  for (int i = 0; i < 4; i++) iteration(false);
  CHECK_THAT(given);
}

int main(void) {
  gives_way_in_the_trough(false);
  gives_way_in_the_trough(true);
  makes_progress_between_turns();
  two_optimizers();
  skipped_steps();
  evaluation_without_steps();
  a_loop_that_grows_is_not_asked_for_ever();
  return 0;
}
