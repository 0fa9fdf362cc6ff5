/* Which devices a process sees.
 *
 * CARPOOL_CUDA_DEVICE names those that the job has been given, by uuid.  If that is one, every process of the job sees it,
 * whatever the script says.  If there are several, a launcher may give each process its part of them, by their numbers among
 * the job's own or by uuid.  A choice that names anything else was made for another machine, and does not count.  One that
 * means no device at all ("", "-1") counts: the process sees none. */
#include "cuda/gate.h"

#include <stdlib.h>
#include <string.h>

#define OWN "CARPOOL_CUDA_DEVICE"
#define VISIBLE "CUDA_VISIBLE_DEVICES"
#define MOST_DEVICES 64u
#define MOST_TEXT 4096u

struct name {
  const char *at;
  size_t length;
};

static uint32_t several;
static const char *shown; /* to the driver when it was initialised: later values do not count; libc frees none */

bool cp_sees_several(void) { return cp_load(&several); }

/* How many names there are; 0 also if there are too many. */
static uint32_t split(const char *list, struct name *names) {
  uint32_t count = 0;
  for (const char *at = list; *at; at += *at == ',') {
    size_t length = strcspn(at, ",");
    if (count == MOST_DEVICES) return 0;
    names[count++] = (struct name){at, length};
    at += length;
  }
  return count;
}

/* The number that a name is; `count` if it is none below that. */
static uint32_t number_of(struct name n, uint32_t count) {
  uint32_t number = 0;
  for (size_t i = 0; i < n.length; i++) {
    if (n.at[i] < '0' || n.at[i] > '9' || number >= count) return count;
    number = 10 * number + (uint32_t)(n.at[i] - '0');
  }
  return n.length && number < count ? number : count;
}

/* As for the driver, the beginning of a uuid will do if it fits one only.  `count`: none, or several. */
static uint32_t place_of(struct name n, const struct name *own, uint32_t count) {
  uint32_t place = number_of(n, count), found = count;
  if (place < count) return place;
  for (uint32_t i = 0; i < count; i++) {
    if (!n.length || n.length > own[i].length || strncmp(own[i].at, n.at, n.length) != 0) continue;
    if (found < count) return count;
    found = i;
  }
  return found;
}

/* The uuids that the program has chosen of its own; false: it has chosen others, or one of them twice. */
static bool choose(const char *list, const char *wanted, char *chosen) {
  struct name own[MOST_DEVICES], names[MOST_DEVICES];
  uint32_t count = split(list, own), asked = split(wanted, names);
  uint64_t seen = 0;
  for (uint32_t i = 0; i < asked; i++) {
    uint32_t place = place_of(names[i], own, count);
    if (place == count || seen & 1ull << place) return false;
    seen |= 1ull << place;
    if (i) *chosen++ = ',';
    memcpy(chosen, own[place].at, own[place].length);
    chosen += own[place].length;
  }
  *chosen = 0;
  return asked > 0;
}

static bool is_none(const char *wanted) {
  wanted += strspn(wanted, " ");
  return !*wanted || *wanted == '-';
}

void cp_see_own_devices(void) {
  const char *own = getenv(OWN), *wanted = getenv(VISIBLE);
  char chosen[MOST_TEXT];
  if (!own || !*own) return;
  bool many = strchr(own, ',') != NULL, none = wanted && is_none(wanted);
  cp_store(&several, many);
  bool part = many && wanted && strlen(own) < sizeof chosen && choose(own, wanted, chosen);
  setenv(VISIBLE, none ? "" : part ? chosen : own, 1);
  if (!cp_load(&cp_driver_used)) cp_store(&shown, (const char *)getenv(VISIBLE));
}

CP_EXPORT const char *cp_visible_devices(void) {
  cp_see_own_devices();
  return cp_load(&shown);
}
