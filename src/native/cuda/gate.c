/* The gate of a process on a CUDA device: who is in a call, who waits for the turn, attaching and forking. */
#include "cuda/turn/tracked_objects.h"
#include "cuda/memory/grant.h"
#include "cuda/memory/handles.h"
#include "cuda/memory/weights.h"

#include <linux/membarrier.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

__thread struct cp_thread *cp_thread __attribute__((tls_model("initial-exec")));
struct cp_thread *cp_threads;
uint32_t cp_own_streams;
uint64_t cp_worked[CP_STREAM_BITS / 64];
uint32_t cp_shut;

static pthread_key_t exit_key;
static pthread_once_t exit_once = PTHREAD_ONCE_INIT;
static uint32_t traits, passing_named;
static char passing[sizeof ((struct cp_seat *)0)->passing];

/* ---- threads ----------------------------------------------------------------------------------------------------------- */

static void thread_ends(void *record) {
  cp_thread = NULL;
  cp_store(&((struct cp_thread *)record)->taken, 0);
}

static void make_key(void) { pthread_key_create(&exit_key, thread_ends); }

static struct cp_thread *spare_record(void) {
  for (struct cp_thread *t = cp_load(&cp_threads); t; t = t->next) {
    uint32_t no = 0;
    if (__atomic_compare_exchange_n(&t->taken, &no, 1, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) return t;
  }
  return NULL;
}

static struct cp_thread *new_record(void) {
  struct cp_thread *t = mmap(NULL, sizeof *t, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (t == MAP_FAILED) return NULL;
  t->taken = 1;
  t->next = cp_load(&cp_threads);
  while (!__atomic_compare_exchange_n(&cp_threads, &t->next, t, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) continue;
  return t;
}

/* Every thread's first call of the driver comes by here, so the driver's pointers are there afterwards. */
struct cp_thread *cp_thread_start(void) {
  static struct cp_thread nobody = {.seq = 1}; /* no memory: like a call within a call */
  int saved = errno;
  cp_driver_start();
  pthread_once(&exit_once, make_key);
  struct cp_thread *t = spare_record();
  if (!t) t = new_record();
  if (!t) return cp_traits(CP_TRAIT_UNGATED), &nobody;
  t->stream = NULL;
  cp_thread = t;
  pthread_setspecific(exit_key, t);
  errno = saved;
  return t;
}

/* Of all threads, in all: a number that changes with each gated call. */
uint64_t cp_cuda_calls(bool *in_flight) {
  uint64_t sum = 0;
  *in_flight = false;
  for (struct cp_thread *t = cp_load(&cp_threads); t; t = t->next) {
    uint64_t seq = __atomic_load_n(&t->seq, __ATOMIC_ACQUIRE);
    *in_flight |= seq & 1;
    sum += seq;
  }
  return sum;
}

void cp_shut_bit(uint32_t bit, bool on) {
  if (on)
    __atomic_or_fetch(&cp_shut, bit, __ATOMIC_SEQ_CST);
  else
    __atomic_and_fetch(&cp_shut, ~bit, __ATOMIC_SEQ_CST);
}

/* All threads have seen the gate's word, or show theirs. */
void cp_cuda_barrier(void) {
  cp_add(&cp_syscalls, 1);
  if (!(cp_load(&cp_shut) & CP_FENCE)) syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
}

/* ---- waiting for the turn ---------------------------------------------------------------------------------------------- */

static void await_turn(void) {
  cp_add(&cp.seat->traps, 1);
  while (cp_load(&cp_shut) & CP_SHUT) {
    uint32_t ending = cp_load(&cp.ending);
    if (ending) {
      cp_futex_wait(&cp.ending, ending, -1);
      continue;
    }
    cp_acquire(&cp.gate_lock);
    if (cp.gate == CP_OPEN || cp_load(&cp.ending))
      cp_release(&cp.gate_lock);
    else
      cp_turn_await(NULL);
  }
}

/* The thread counts as in flight, but not while it waits. */
void cp_enter_slowly(struct cp_thread *t, uint64_t seq) {
  int saved = errno;
  uint32_t once = CP_BOUND | CP_GUARD; /* to be looked at before this call */
  for (;;) {
    cp_store(&t->seq, seq + 1); /* a fence, too: where there is no membarrier it is needed */
    uint32_t shut = cp_load(&cp_shut);
    if (!(shut & (CP_SHUT | CP_AHEAD | CP_ASK | once))) break;
    cp_store(&t->seq, seq);
    if (shut & CP_ASK)
      cp_cuda_claim();
    else if (shut & CP_SHUT)
      await_turn();
    else if (shut & CP_AHEAD)
      cp_ahead_wait();
    else if (shut & once & CP_GUARD)
      cp_groups_gate(t), once &= ~(uint32_t)CP_GUARD;
    else
      cp_backlog_wait(), once &= ~(uint32_t)CP_BOUND;
  }
  errno = saved;
}

/* ---- attaching, fork --------------------------------------------------------------------------------------------------- */

void cp_traits(uint32_t more) {
  __atomic_or_fetch(&traits, more, __ATOMIC_SEQ_CST);
  if (!cp_active() || cp.backend != &cp_cuda_backend) return;
  if (cp_load(&passing_named)) memcpy(cp.seat->passing, passing, sizeof passing);
  __atomic_or_fetch(&cp.seat->traits, more, __ATOMIC_SEQ_CST);
}

void cp_passes(const char *name) {
  static uint32_t first;
  if (!__atomic_exchange_n(&first, 1, __ATOMIC_SEQ_CST)) {
    strncpy(passing, name, sizeof passing - 1);
    cp_store(&passing_named, 1);
  }
  cp_traits(CP_TRAIT_UNGATED);
}

/* The driver has been initialised, but not through the gate. */
void cp_cuda_check_use(void) {
  static uint32_t told;
  int count;
  if (CP_LIKELY(cp_relaxed(&cp_driver_used)) || told) return;
  if (!cp_driver_known()) return;
  if (cp_real.cuDeviceGetCount(&count) != CUDA_SUCCESS) return;
  told = 1;
  cp_traits(CP_TRAIT_UNGATED);
}

/* Tensors in ordinary memory are not the device's here, and device memory is the driver's. */
static void follow_driver_alone(void) {
  cp.text_count = 0;
  cp_forks_watch();
}

int cp_cuda_attach(const struct cp_packet *setup, const int *files, int count) {
  follow_driver_alone();
  cp.capacity = setup->d;
  cp_extents_attach(setup->b);
  for (int i = 1; i < count; i++) close(files[i]);
  if (syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0)) cp_shut_bit(CP_FENCE, true);
  return 0;
}

void cp_cuda_pending(void) {
  follow_driver_alone();
  cp_shut_bit(CP_ASK, true);
}

/* Attached or refused: then the gate is as it should be. */
void cp_cuda_claim(void) {
  cp_claim_seat();
  cp_shut_bit(CP_ASK, false);
}

/* What was submitted before ends by itself. */
void cp_cuda_attached(void) {
  cp_traits(cp_load(&traits));
  cp_memory_tell();
  cp_shut_bit(CP_SHUT, true);
}

/* The books are whole in the child, and their lock is free. */
void cp_cuda_before_fork(void) {
  cp_handles_lock();
  cp_extents_fork();
  cp_acquire(&cp_books.lock);
}

void cp_cuda_after_fork(bool child) {
  cp_release(&cp_books.lock);
  cp_extents_forked(child);
  cp_handles_forked(child);
  if (child) cp_driver_forked();
  if (child) cp_store(&cp_shut, 0);
}

void cp_cuda_anew(void) {
  for (struct cp_thread *t = cp_threads; t; t = t->next) {
    if (t == cp_thread) continue;
    t->seq += t->seq & 1;
    cp_store(&t->taken, 0);
  }
  cp_store(&traits, cp_load(&traits) & CP_TRAIT_UNGATED); /* as its parent finds the driver, it will */
}
