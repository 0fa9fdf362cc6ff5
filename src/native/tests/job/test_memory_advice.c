/* Locks and advice leave the mappings of device memory whole, and reach other memory. */
#pragma GCC diagnostic ignored "-Wunused-function" /* what others need of it */
#include "tests/job.h"

#include "job/memory_advice.c"

/* Mappings of the job's windows. */
static int mappings(void) {
  FILE *maps = fopen("/proc/self/maps", "r");
  char line[512];
  unsigned long from;
  int found = 0;
  CHECK_THAT(maps);
  while (fgets(line, sizeof line, maps))
    if (sscanf(line, "%lx-", &from) == 1 && cp_arenas_hold(&cp.arenas, (void *)from)) found++;
  fclose(maps);
  return found;
}

static void device_memory(void) {
  char *inside = (char *)block + CP_PAGE;
  int before = mappings();
  CHECK_THAT(!mlock(inside, CP_PAGE) && !mlock2(inside, CP_PAGE, 0) && mappings() == before);
  CHECK_THAT(!madvise(inside, CP_PAGE, MADV_HUGEPAGE) && !madvise(inside, CP_PAGE, MADV_DONTFORK));
  CHECK_THAT(mappings() == before && !munlock(inside, CP_PAGE));
  CHECK_THAT(!madvise(inside, CP_PAGE, MADV_DONTNEED) && madvise(inside + 1, CP_PAGE, MADV_DONTNEED) == -1);
  use_all();
}

static void other_memory(void) {
  char *page = mmap(NULL, CP_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  *page = 1;
  CHECK_THAT(!madvise(page, CP_PAGE, MADV_DONTNEED) && *page == 0);
  CHECK_THAT(!mlock(page, CP_PAGE) && !munlock(page, CP_PAGE) && !munmap(page, CP_PAGE));
  CHECK_THAT(mlock(page, CP_PAGE) == -1 && errno == ENOMEM && munlock(page, CP_PAGE) == -1);
}

int main(void) {
  begin();
  device_memory();
  other_memory();
  return 0;
}
