/* Who asks for memory: PyTorch's caching allocator (libc10_cuda), or another library?
 *
 * With expandable segments the allocator calls the driver itself; otherwise it calls cudaMalloc, and the runtime calls the
 * driver.  So the frames of the runtime, and ours, are skipped: the one before them is who asks. */
#include "cuda/gate.h"

#include <dlfcn.h>
#include <link.h>
#include <string.h>
#include <unwind.h>

#define MOST_RANGES 16
#define MOST_FRAMES 24

enum owner { SOMEBODY = 0, ALLOCATOR, BETWEEN };

struct range {
  uintptr_t lo, hi;
  enum owner owner;
};

struct search {
  unsigned long long adds; /* libraries loaded so far in this process */
  struct range range[MOST_RANGES];
  uint32_t count;
};

static struct cp_lock lock;
static struct search known;

static enum owner owner_of(const struct search *s, uintptr_t address) {
  for (uint32_t i = 0; i < s->count; i++)
    if (address - s->range[i].lo < s->range[i].hi - s->range[i].lo) return s->range[i].owner;
  return SOMEBODY;
}

static bool holds(const struct dl_phdr_info *info, uintptr_t address) {
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const ElfW(Phdr) *h = &info->dlpi_phdr[i];
    if (h->p_type == PT_LOAD && address - (info->dlpi_addr + h->p_vaddr) < h->p_memsz) return true;
  }
  return false;
}

static int note(struct dl_phdr_info *info, size_t size, void *argument) {
  struct search *s = argument;
  (void)size;
  s->adds = info->dlpi_adds;
  const char *name = info->dlpi_name ? strrchr(info->dlpi_name, '/') : NULL;
  name = name ? name + 1 : "";
  enum owner owner = SOMEBODY;
  if (!strncmp(name, "libc10_cuda.so", 14)) owner = ALLOCATOR;
  if (!strncmp(name, "libcudart", 9) || holds(info, (uintptr_t)&note)) owner = BETWEEN;
  for (int i = 0; owner != SOMEBODY && i < info->dlpi_phnum && s->count < MOST_RANGES; i++) {
    const ElfW(Phdr) *h = &info->dlpi_phdr[i];
    if (h->p_type != PT_LOAD || !(h->p_flags & PF_X)) continue;
    uintptr_t lo = info->dlpi_addr + h->p_vaddr;
    s->range[s->count++] = (struct range){lo, lo + h->p_memsz, owner};
  }
  return 0;
}

static int count_adds(struct dl_phdr_info *info, size_t size, void *adds) {
  (void)size;
  *(unsigned long long *)adds = info->dlpi_adds;
  return 1;
}

/* As long as no further library has been loaded the answer is the same. */
static void look(struct search *s) {
  unsigned long long adds = 0;
  dl_iterate_phdr(count_adds, &adds);
  cp_acquire(&lock);
  *s = known;
  cp_release(&lock);
  if (s->adds == adds && s->count) return;
  *s = (struct search){0};
  dl_iterate_phdr(note, s);
  cp_acquire(&lock);
  known = *s;
  cp_release(&lock);
}

struct walk {
  const struct search *search;
  enum owner owner;
  uint32_t frames;
};

static __typeof__(_Unwind_GetIP) *address_of;
static __typeof__(_Unwind_Backtrace) *walk_frames;

static _Unwind_Reason_Code step(struct _Unwind_Context *context, void *argument) {
  struct walk *w = argument;
  w->owner = owner_of(w->search, (uintptr_t)address_of(context));
  return w->owner == BETWEEN && ++w->frames < MOST_FRAMES ? _URC_NO_REASON : _URC_END_OF_STACK;
}

/* Not linked: every process that is preloaded would have to load it.  A process with PyTorch in it has it. */
static bool find_unwinder(void) {
  if (address_of) return true;
  void *library = dlopen("libgcc_s.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (!library) return false;
  walk_frames = (__typeof__(walk_frames))dlsym(library, "_Unwind_Backtrace");
  cp_store(&address_of, (__typeof__(address_of))dlsym(library, "_Unwind_GetIP"));
  return walk_frames && address_of;
}

bool cp_from_allocator(const void *caller) {
  struct search s;
  look(&s);
  enum owner owner = owner_of(&s, (uintptr_t)caller);
  if (owner != BETWEEN) return owner == ALLOCATOR;
  struct walk w = {.search = &s};
  if (find_unwinder()) walk_frames(step, &w);
  return w.owner == ALLOCATOR;
}
