/* A handler that touches a tensor at random instants, and counts how often: in the tensor, and beside it. */
#define _GNU_SOURCE
#include <signal.h>
#include <string.h>
#include <sys/time.h>

#define WORDS 1024

static volatile long *tensor;
static volatile long count;

static void touch(int sig) {
  (void)sig;
  for (int i = 0; i < 4; i++) tensor[(count * 61 + i) % WORDS]++;
  count++;
}

/* `tensor_` has WORDS words of zero. */
void begin(void *tensor_, int interval_us) {
  struct sigaction action;
  struct itimerval often = {{0, interval_us}, {0, interval_us}};
  memset(&action, 0, sizeof action);
  action.sa_handler = touch;
  action.sa_flags = SA_RESTART;
  tensor = tensor_;
  sigaction(SIGALRM, &action, NULL);
  setitimer(ITIMER_REAL, &often, NULL);
}

long end(void) {
  struct itimerval never = {{0, 0}, {0, 0}};
  setitimer(ITIMER_REAL, &never, NULL);
  return count;
}
