/* What lies at which address in this process, and whether the device may touch it. */
#define _GNU_SOURCE
#include "stub.h"
#include <sys/mman.h>

static struct stub_range *ranges;
static uint64_t next_id = 1;
static pthread_mutex_t ranges_lock;

__attribute__((constructor)) static void make_lock(void) {
  pthread_mutexattr_t recursive;
  pthread_mutexattr_init(&recursive);
  pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
  pthread_mutex_init(&ranges_lock, &recursive);
}

void stub_ranges_lock(void) { pthread_mutex_lock(&ranges_lock); }
void stub_ranges_unlock(void) { pthread_mutex_unlock(&ranges_lock); }
struct stub_range *stub_range_first(void) { return ranges; }

struct stub_range *stub_range_find(const void *address) {
  struct stub_range *range = ranges;
  while (range && !((const char *)address >= range->base && (const char *)address < range->base + range->bytes))
    range = range->next;
  return range;
}

struct stub_range *stub_range_add(enum stub_kind kind, void *base, size_t bytes, size_t span, CUcontext context) {
  struct stub_range *range = calloc(1, sizeof *range);
  stub_ranges_lock();
  *range = (struct stub_range){.kind = kind, .base = base, .bytes = bytes, .span = span, .id = next_id++,
                               .context = context, .prot = PROT_READ | PROT_WRITE, .next = ranges};
  ranges = range;
  stub_ranges_unlock();
  return range;
}

void stub_range_remove(struct stub_range *range) {
  stub_ranges_lock();
  struct stub_range **at = &ranges;
  while (*at != range) at = &(*at)->next;
  *at = range->next;
  stub_ranges_unlock();
  free(range);
}

bool stub_reaches(CUdeviceptr address, size_t bytes, bool write) {
  const char *at = (const char *)address, *end = at + bytes;
  int needed = write ? PROT_WRITE : PROT_READ;
  bool reaches = true;
  stub_ranges_lock();
  while (at < end && reaches) {
    struct stub_range *range = stub_range_find(at);
    reaches = range && (range->prot & needed) && !(range->physical && range->physical->saved >= 0);
    if (reaches) at = range->base + range->bytes;
  }
  stub_ranges_unlock();
  return reaches;
}

static bool reaches_all(const struct stub_access *places, unsigned count, size_t at, size_t bytes) {
  for (unsigned i = 0; i < count; i++)
    if (!places[i].host && !stub_reaches((CUdeviceptr)places[i].address + at, bytes, places[i].write)) return false;
  return true;
}

CUresult stub_by_pieces(const struct stub_access *places, unsigned count, size_t bytes, stub_act *act, void *argument) {
  enum { PIECE = 1 << 18 };
  bool reaches = true;
  for (size_t at = 0, n; at < bytes && reaches; at += n) {
    n = bytes - at < PIECE ? bytes - at : PIECE;
    stub_ranges_lock();
    reaches = reaches_all(places, count, at, n);
    if (reaches) act(argument, at, n);
    stub_ranges_unlock();
  }
  return reaches ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS;
}

/* Maps the range's memory at its address.  A fork's child does not get it, as with the real driver. */
CUresult stub_range_map(struct stub_range *range, int prot) {
  void *at = mmap(range->base, range->span, prot, MAP_SHARED | MAP_FIXED, range->physical->fd, (off_t)range->offset);
  if (at == MAP_FAILED) return CUDA_ERROR_MAP_FAILED;
  madvise(at, range->span, MADV_DONTFORK);
  range->prot = prot;
  return CUDA_SUCCESS;
}

/* Device memory with an address of its own: cuMemAlloc and its relatives.  Takes whole pages of 2 MiB. */
CUresult stub_device_alloc(CUcontext context, enum stub_kind kind, size_t bytes, struct stub_range **range) {
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (bytes > SIZE_MAX / 2) return CUDA_ERROR_OUT_OF_MEMORY;
  size_t span = stub_round(bytes, STUB_PAGE);
  struct stub_physical *physical;
  unsigned char content = kind == STUB_VARIABLE ? STUB_ZERO : STUB_OLD;
  CUresult result = stub_physical_new(stub.device[context->device].ordinal, span, content, &physical);
  if (result) return result;
  char *raw = mmap(NULL, span + STUB_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED) return stub_physical_drop(physical), CUDA_ERROR_OUT_OF_MEMORY;
  char *base = (char *)stub_round((size_t)raw, STUB_PAGE);
  if (base > raw) munmap(raw, (size_t)(base - raw));
  if (base + span < raw + span + STUB_PAGE) munmap(base + span, (size_t)(raw + STUB_PAGE - base));
  stub_ranges_lock();
  *range = stub_range_add(kind, base, bytes, span, context);
  (*range)->physical = physical;
  physical->maps++;
  result = stub_range_map(*range, PROT_READ | PROT_WRITE);
  stub_ranges_unlock();
  if (result) stub_device_free(*range);
  return result;
}

void stub_device_free(struct stub_range *range) {
  stub_ranges_lock();
  struct stub_physical *physical = range->physical;
  munmap(range->base, range->span);
  stub_range_remove(range);
  if (physical) physical->maps--, stub_physical_drop(physical);
  stub_ranges_unlock();
}
