/* Events between processes.  Recordings of an event are numbered; its slot says which is the latest, and up to which they
 * are done.  Whoever waits looks at the slot every 50 us.
 *
 * A recording counts as done, too, when its process has ended, or when the slot is another event's by now, which the
 * generation tells.  That of a broken context is never done while its process lives. */
#define _GNU_SOURCE
#include "ipc_event.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

struct stub_slot {
  uint32_t owner;    /* the process that made the event, with DESTROYED when it is; 0: never used */
  uint32_t recorder; /* the process of the latest recording */
  uint32_t generation, unused;
  uint64_t recorded, done;
};
enum { SLOTS = 1 << 14 };
#define DESTROYED 0x80000000u
static const char magic[] = "carpool event";
static struct stub_slot *table;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void map_table(void) {
  char path[256];
  snprintf(path, sizeof path, "%s/events", stub.directory);
  int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0 || ftruncate(fd, SLOTS * sizeof *table)) return;
  void *at = mmap(NULL, SLOTS * sizeof *table, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (at != MAP_FAILED) table = at;
  close(fd);
}
static bool has_table(void) {
  pthread_once(&once, map_table);
  return table != NULL;
}

static bool alive(uint32_t pid) { return pid && (!kill((pid_t)pid, 0) || errno == EPERM); }

/* A destroyed event keeps its slot while somebody may wait for its last recording. */
static bool reusable(const struct stub_slot *slot, uint32_t owner) {
  bool quiet = __atomic_load_n(&slot->done, __ATOMIC_ACQUIRE) >= __atomic_load_n(&slot->recorded, __ATOMIC_ACQUIRE);
  return (owner & DESTROYED && quiet) || !alive(owner & ~DESTROYED);
}
static bool take(struct stub_slot *slot) {
  uint32_t owner = __atomic_load_n(&slot->owner, __ATOMIC_ACQUIRE), own = (uint32_t)getpid();
  return reusable(slot, owner) &&
         __atomic_compare_exchange_n(&slot->owner, &owner, own, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

CUresult stub_ipc_new(struct stub_ipc *ipc) {
  if (!has_table()) return CUDA_ERROR_OPERATING_SYSTEM;
  struct stub_slot *slot = table;
  while (slot < table + SLOTS && !take(slot)) slot++;
  if (slot == table + SLOTS) return CUDA_ERROR_OUT_OF_MEMORY;
  uint32_t generation = __atomic_add_fetch(&slot->generation, 1, __ATOMIC_ACQ_REL);
  __atomic_store_n(&slot->done, __atomic_load_n(&slot->recorded, __ATOMIC_ACQUIRE), __ATOMIC_RELEASE);
  *ipc = (struct stub_ipc){slot, generation};
  return CUDA_SUCCESS;
}

static bool current(struct stub_ipc ipc) {
  return __atomic_load_n(&ipc.slot->generation, __ATOMIC_ACQUIRE) == ipc.generation;
}

void stub_ipc_free(struct stub_ipc ipc) { __atomic_or_fetch(&ipc.slot->owner, DESTROYED, __ATOMIC_ACQ_REL); }

struct told { char magic[sizeof magic]; uint32_t slot, generation; };
_Static_assert(sizeof(struct told) <= sizeof(CUipcEventHandle), "a handle holds what is told");

void stub_ipc_tell(struct stub_ipc ipc, CUipcEventHandle *handle) {
  struct told told = {.slot = (uint32_t)(ipc.slot - table), .generation = ipc.generation};
  memcpy(told.magic, magic, sizeof magic);
  memset(handle, 0, sizeof *handle);
  memcpy(handle, &told, sizeof told);
}

CUresult stub_ipc_open(const CUipcEventHandle *handle, struct stub_ipc *ipc) {
  struct told told;
  memcpy(&told, handle, sizeof told);
  if (memcmp(told.magic, magic, sizeof magic) || told.slot >= SLOTS) return CUDA_ERROR_INVALID_VALUE;
  if (!has_table()) return CUDA_ERROR_MAP_FAILED;
  *ipc = (struct stub_ipc){&table[told.slot], told.generation};
  bool destroyed = __atomic_load_n(&ipc->slot->owner, __ATOMIC_ACQUIRE) & DESTROYED;
  return current(*ipc) && !destroyed ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

struct recording { struct stub_ipc ipc; uint64_t number; };

static bool done(const struct recording *recording) {
  struct stub_slot *slot = recording->ipc.slot;
  return __atomic_load_n(&slot->done, __ATOMIC_ACQUIRE) >= recording->number || !current(recording->ipc) ||
         !alive(__atomic_load_n(&slot->recorder, __ATOMIC_ACQUIRE));
}
static CUresult wait(void *payload) {
  while (!done(payload)) nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
  return CUDA_SUCCESS;
}
static CUresult finish(void *payload) {
  const struct recording *recording = payload;
  uint64_t *at = &recording->ipc.slot->done, before = __atomic_load_n(at, __ATOMIC_ACQUIRE);
  while (current(recording->ipc) && before < recording->number &&
         !__atomic_compare_exchange_n(at, &before, recording->number, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
    continue;
  return CUDA_SUCCESS;
}

struct stub_op *stub_ipc_record(struct stub_ipc ipc) {
  __atomic_store_n(&ipc.slot->recorder, (uint32_t)getpid(), __ATOMIC_RELEASE);
  struct recording recording = {ipc, __atomic_add_fetch(&ipc.slot->recorded, 1, __ATOMIC_ACQ_REL)};
  return stub_op(CU_GRAPH_NODE_TYPE_EVENT_RECORD, finish, &recording, sizeof recording);
}
static struct recording latest(struct stub_ipc ipc) {
  return (struct recording){ipc, __atomic_load_n(&ipc.slot->recorded, __ATOMIC_ACQUIRE)};
}
struct stub_op *stub_ipc_wait(struct stub_ipc ipc) {
  struct recording recording = latest(ipc);
  return stub_op(CU_GRAPH_NODE_TYPE_WAIT_EVENT, wait, &recording, sizeof recording);
}
bool stub_ipc_done(struct stub_ipc ipc) {
  struct recording recording = latest(ipc);
  return done(&recording);
}
void stub_ipc_synchronize(struct stub_ipc ipc) {
  struct recording recording = latest(ipc);
  wait(&recording);
}
