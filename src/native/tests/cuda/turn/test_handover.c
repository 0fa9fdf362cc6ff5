/* Two jobs in processes of their own hand the turn to each other, without the daemon: on the device never two at once.
 * Then one is killed in the middle of its turn. */
#include "tests/cuda/turn/two_jobs.h"

#define ROUNDS 400

static void job(bool for_ever) {
  static uint64_t got[64], expected[64];
  CUdeviceptr data;
  OK(cuMemAlloc_v2(&data, sizeof got));
  CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
  meet();
  OK(cuMemsetD8Async(data, 0, sizeof got, stream));
  for (uint64_t seed = 1; seed <= ROUNDS || for_ever || !enough(); seed++) {
    uint64_t count = 64;
    OK(cuLaunchKernel(mix, 1, 1, 1, 1, 1, 1, 0, stream, (void *[]){&data, &count, &seed}, NULL));
    spin_on(stream, 50);
    OK(cuLaunchHostFunc(stream, check_alone, NULL));
    mix_words(expected, count, seed);
    if (seed % 4 == 0) OK(cuStreamSynchronize(stream));
    cp_step_end(0, seed == 1);
    if (seed >= ROUNDS / 2 && enough()) cp_store(&shared->ended[me], 1);
  }
  OK(cuMemcpyDtoHAsync_v2(got, data, sizeof got, stream));
  OK(cuStreamSynchronize(stream));
  CHECK_THAT(!memcmp(got, expected, sizeof got));
  finish();
}

/* Iterations of more launches than a launch queue holds: while a turn ends, a call waits in the driver. */
static void busy_job(bool for_ever) {
  CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
  meet();
  for (uint64_t i = 0; i < 10 || for_ever || !enough(); i++) {
    for (int launches = 0; launches < 5000; launches++) spin_on(stream, 1);
    OK(cuLaunchHostFunc(stream, check_alone, NULL));
    cp_step_end(0, i == 0);
  }
  OK(cuStreamSynchronize(stream));
  finish();
}

int main(void) {
  alarm(110);
  prepare();
  both_run(job, false);
  both_run(job, true);
  both_run(busy_job, false);
  return 0;
}
