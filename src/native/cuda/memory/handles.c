/* The books of physical memory that the program makes itself: handles by number, mappings in order of address. */
#include "cuda/memory/handles.h"
#include "cuda/memory/grant.h"

#include <string.h>

#define MOST_HANDLES (1u << 16)
#define MOST_MAPPINGS (1u << 17)
#define TAG 0xca9000000000000ull /* no pointer, and no small number */

static struct cp_lock lock;
static struct cp_handle *handles; /* MOST_HANDLES */
static struct cp_mapping *mappings;
static uint32_t high, spare, count; /* handles used so far, where to look for a free one, mappings */
static uint64_t made;

void cp_handles_lock(void) { cp_acquire(&lock); }
void cp_handles_unlock(void) { cp_release(&lock); }

void cp_handles_made(int64_t bytes) {
  made += (uint64_t)bytes;
  if (cp.seat) cp_put(&cp.seat->made, made);
}

/* A child has no seat, and cannot use what its parent has mapped. */
void cp_handles_forked(bool child) {
  if (child) {
    high = spare = count = 0, made = 0;
    cp_handles_forget_grants();
    cp_handles_forget_moves();
  }
  cp_release(&lock);
}

/* ---- handles ------------------------------------------------------------------------------------------------------------ */

static bool room(void) {
  if (!handles) handles = cp_zeroed(MOST_HANDLES * sizeof *handles);
  if (!mappings) mappings = cp_zeroed(MOST_MAPPINGS * sizeof *mappings);
  return handles && mappings;
}

static struct cp_handle *free_record(void) {
  while (spare < high && handles[spare].used) spare++;
  if (spare == MOST_HANDLES) return NULL;
  if (spare == high) high++;
  return &handles[spare];
}

struct cp_handle *cp_handle_new(CUmemGenericAllocationHandle real, uint64_t bytes, const CUmemAllocationProp *prop) {
  struct cp_handle *h = room() ? free_record() : NULL;
  if (!h) return NULL;
  uint32_t number = h->number + 1; /* a late use of an earlier handle finds nothing */
  *h = (struct cp_handle){.real = real, .bytes = bytes, .prop = *prop, .references = 1, .number = number, .used = 1};
  return h;
}

CUmemGenericAllocationHandle cp_handle_number(const struct cp_handle *h) {
  return TAG | (uint64_t)(h->number & 0xffffff) << 16 | (uint64_t)(h - handles);
}

struct cp_handle *cp_handle_of(CUmemGenericAllocationHandle number) {
  uint32_t index = number & (MOST_HANDLES - 1);
  if (number >> 40 != TAG >> 40 || index >= high) return NULL;
  struct cp_handle *h = &handles[index];
  return h->used && cp_handle_number(h) == number ? h : NULL;
}

bool cp_handle_over(struct cp_handle *h, struct cp_handle *was) {
  if (h->references || h->mappings) return false;
  *was = *h;
  h->used = 0;
  if (h - handles < spare) spare = (uint32_t)(h - handles);
  return true;
}

struct cp_handle *cp_handle_next(struct cp_handle *h) {
  for (uint32_t i = h ? (uint32_t)(h - handles) + 1 : 0; i < high; i++)
    if (handles[i].used) return &handles[i];
  return NULL;
}

/* ---- mappings ----------------------------------------------------------------------------------------------------------- */

struct cp_mapping *cp_mapping_from(CUdeviceptr address) {
  uint32_t lo = 0, hi = count;
  while (lo < hi) {
    uint32_t middle = (lo + hi) / 2;
    if (mappings[middle].address + mappings[middle].bytes <= address)
      lo = middle + 1;
    else
      hi = middle;
  }
  return lo < count ? &mappings[lo] : NULL;
}

struct cp_mapping *cp_mapping_at(CUdeviceptr address) {
  struct cp_mapping *m = cp_mapping_from(address);
  return m && m->address <= address ? m : NULL;
}

struct cp_mapping *cp_mapping_next(struct cp_mapping *m) {
  uint32_t i = m ? (uint32_t)(m - mappings) + 1 : 0;
  return i < count ? &mappings[i] : NULL;
}

bool cp_mapping_add(struct cp_mapping new) {
  if (count == MOST_MAPPINGS) return false;
  struct cp_mapping *next = cp_mapping_from(new.address), *at = next ? next : &mappings[count];
  memmove(at + 1, at, (size_t)(&mappings[count] - at) * sizeof *at);
  *at = new;
  count++;
  new.handle->mappings++;
  return true;
}

void cp_mapping_remove(struct cp_mapping *m) {
  m->handle->mappings--;
  count--;
  memmove(m, m + 1, (size_t)(&mappings[count] - m) * sizeof *m);
}

bool cp_mappings_cover(CUdeviceptr address, uint64_t bytes) {
  CUdeviceptr at = address, end = address + bytes;
  for (struct cp_mapping *m = cp_mapping_from(address); m && at < end && m->address == at; m = cp_mapping_next(m))
    at += m->bytes;
  return bytes && at == end;
}

bool cp_handles_hold(CUdeviceptr address) {
  if (CP_LIKELY(!cp_relaxed(&count))) return false;
  cp_handles_lock();
  bool found = cp_mapping_at(address) != NULL;
  cp_handles_unlock();
  return found;
}
