/* A stand-in for libcarpool: preloaded by the tests, it writes each call of the runtime to the file $CP_RECORD. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void record(const char *name, long a, long b) {
  const char *path = getenv("CP_RECORD");
  FILE *file = path ? fopen(path, "a") : NULL;
  if (!file)
    return;
  fprintf(file, "%s %ld %ld\n", name, a, b);
  fclose(file);
}

int cp_attach(int fd) {
  const char *answer = getenv("CP_ANSWER");
  record("attach", fd, getpid());
  return answer ? atoi(answer) : 0;
}
int cp_join(const char *path, const char *message, int cuda) {
  (void)path, (void)message;
  record("join", cuda, getpid());
  return 2;
}
void cp_begin_iterations(void) { record("begin_iterations", 0, 0); }
void cp_step_begin(int optimizer, int first) { record("step_begin", optimizer, first); }
/* $CP_TURN_ENDS: the turn ends at every boundary. */
int cp_step_end(int optimizer, int first) {
  record("step_end", optimizer, first);
  return getenv("CP_TURN_ENDS") != NULL;
}
void cp_iteration_begin(void) { record("iteration_begin", 0, 0); }
int cp_iteration_end(void) {
  record("iteration_end", 0, 0);
  return getenv("CP_TURN_ENDS") != NULL;
}
void cp_watch_forks(void) { record("watch_forks", getpid(), 0); }
const char *cp_visible_devices(void) { return getenv("CP_VISIBLE"); }
void cp_out_of_memory(unsigned what) { record("out_of_memory", (int)what, 0); }
void cp_pool_scope(int change) { record("pool_scope", change, 0); }
void cp_live_blocks(const uint64_t *addresses, const uint64_t *bytes, uint64_t count) {
  record("live_blocks", (long)count, 0);
  for (uint64_t i = 0; count != UINT64_MAX && i < count; i++) record("block", (long)addresses[i], (long)bytes[i]);
}
void cp_progress(uint64_t done, uint64_t total) { record("progress", (long)done, (long)total); }
void cp_counters(void *counters) { (void)counters; }
const char *cp_error(void) { return "the recorder was told to fail"; }
