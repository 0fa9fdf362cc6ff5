/* Which devices a process sees, by what its job has been given and what its script or its launcher says. */
#include "tests/check.h"
#include "cuda/visible_devices.c"

uint32_t cp_driver_used;

#define A "GPU-aaaa-1"
#define B "GPU-aaaa-2"
#define C "MIG-cccc"

/* What CUDA_VISIBLE_DEVICES becomes. */
static const char *seen(const char *own, const char *said) {
  setenv("CARPOOL_CUDA_DEVICE", own, 1);
  if (said)
    setenv("CUDA_VISIBLE_DEVICES", said, 1);
  else
    unsetenv("CUDA_VISIBLE_DEVICES");
  const char *counted = cp_visible_devices();
  CHECK_THAT(counted && !strcmp(counted, getenv("CUDA_VISIBLE_DEVICES")));
  return counted;
}

#define SEES(own, said, expected) CHECK_THAT(!strcmp(seen(own, said), expected))

static void one_device_is_that_one(void) {
  static const char *const said[] = {NULL, "0", "1", "0,1", A, B, C, "7", "NoDevFiles", ","};
  for (size_t i = 0; i < sizeof said / sizeof *said; i++) SEES(A, said[i], A);
  CHECK_THAT(!cp_sees_several());
}

static void none_at_all_may_be_chosen(void) {
  static const char *const said[] = {"", "-1", " ", " -1", "-1,0"};
  for (size_t i = 0; i < sizeof said / sizeof *said; i++) {
    SEES(A, said[i], "");
    SEES(A "," B, said[i], "");
  }
}

static void of_several_a_part_may_be_chosen(void) {
  const char *all = A "," B "," C;
  SEES(all, NULL, A "," B "," C);
  SEES(all, "1", B);
  SEES(all, "2,0", C "," A);
  SEES(all, "0,1,2", A "," B "," C);
  SEES(all, B, B);
  SEES(all, "MIG,0", C "," A);
  CHECK_THAT(cp_sees_several());
}

static void what_is_not_the_jobs_does_not_count(void) {
  const char *all = A "," B "," C;
  static const char *const said[] = {"3", "0,3", "0,0", "1," B,       "GPU-aaaa", "GPU-bbbb", "0,,1",      A "11",
                                     ",", "x",   "1x",  "4294967296", "0 1",      A "," A,    "NoDevFiles"};
  for (size_t i = 0; i < sizeof said / sizeof *said; i++) SEES(all, said[i], all);
}

static void more_than_can_be_told_apart_is_left_as_it_is(void) {
  char own[8192] = "", many[1024] = "0";
  for (int i = 0; i < 70; i++) sprintf(own + strlen(own), "%sGPU-%032d", i ? "," : "", i);
  for (int i = 0; i < 70; i++) strcat(many, ",0");
  SEES(own, "1", own);
  SEES(A "," B, many, A "," B);
  memset(own, 'x', 8000), own[4000] = ',';
  SEES(own, "1", own);
}

static void what_the_driver_has_read_stays(void) {
  const char *all = A "," B;
  SEES(all, "1", B);
  cp_driver_used = 1;
  setenv("CUDA_VISIBLE_DEVICES", "0", 1);
  CHECK_THAT(!strcmp(cp_visible_devices(), B));
  cp_driver_used = 0;
  CHECK_THAT(!strcmp(cp_visible_devices(), A));
}

static void beside_carpool_nothing_changes(void) {
  CHECK_THAT(!unsetenv("CARPOOL_CUDA_DEVICE") && !setenv("CUDA_VISIBLE_DEVICES", "7", 1));
  cp_see_own_devices();
  CHECK_THAT(!strcmp(getenv("CUDA_VISIBLE_DEVICES"), "7"));
}

int main(void) {
  one_device_is_that_one();
  none_at_all_may_be_chosen();
  of_several_a_part_may_be_chosen();
  what_is_not_the_jobs_does_not_count();
  more_than_can_be_told_apart_is_left_as_it_is();
  what_the_driver_has_read_stays();
  beside_carpool_nothing_changes();
  return 0;
}
