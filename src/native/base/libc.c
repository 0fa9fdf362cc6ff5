#include "base/common.h"
#include "base/libc.h"

#include <elf.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>

extern const char *gnu_get_libc_version(void) __attribute__((weak)); /* glibc, gcompat */
extern void __dls3(void) __attribute__((weak));                      /* the last stage of musl's loader */

bool cp_libc_is_foreign(void) { return __dls3 || !gnu_get_libc_version; }

bool cp_disabled(void) {
  const char *value = getenv("CARPOOL_DISABLE");
  return (value && *value && strcmp(value, "0") != 0) || cp_libc_is_foreign();
}

/* ---- a symbol of a loaded library: System V ABI, "Dynamic Linking" -------------------------------------------------- */

struct tables {
  const char *base, *names;
  const ElfW(Sym) *symbols;
  const uint32_t *hash, *gnu_hash;
};

/* Relative to the library's address, as in the file, unless the loader has added that: glibc's does. */
static void note_table(struct tables *t, const ElfW(Dyn) *entry) {
  bool added = entry->d_un.d_ptr >= (uintptr_t)t->base;
  const void *table = (added ? NULL : t->base) + entry->d_un.d_ptr;
  if (entry->d_tag == DT_STRTAB) t->names = table;
  if (entry->d_tag == DT_SYMTAB) t->symbols = table;
  if (entry->d_tag == DT_HASH) t->hash = table;
  if (entry->d_tag == DT_GNU_HASH) t->gnu_hash = table;
}

static struct tables tables_of(const struct dl_phdr_info *info) {
  struct tables t = {.base = (const char *)info->dlpi_addr};
  const ElfW(Dyn) *entry = NULL;
  for (int i = 0; i < info->dlpi_phnum; i++)
    if (info->dlpi_phdr[i].p_type == PT_DYNAMIC) entry = (const void *)(t.base + info->dlpi_phdr[i].p_vaddr);
  for (; entry && entry->d_tag != DT_NULL; entry++) note_table(&t, entry);
  return t;
}

/* The symbols of a bucket lie one after the other, and the last one's hash is odd: the last symbol is that of the
 * bucket that begins last. */
static uint32_t count_by_gnu_hash(const uint32_t *table) {
  uint32_t buckets = table[0], first = table[1], last = 0;
  const uint32_t *bucket = table + 4 + table[2] * (sizeof(ElfW(Addr)) / sizeof *table), *chain = bucket + buckets;
  for (uint32_t i = 0; i < buckets; i++)
    if (bucket[i] > last) last = bucket[i];
  if (last < first) return first;
  while (!(chain[last - first] & 1)) last++;
  return last + 1;
}

static uint32_t count(const struct tables *t) {
  if (!t->names || !t->symbols) return 0;
  return t->hash ? t->hash[1] : t->gnu_hash ? count_by_gnu_hash(t->gnu_hash) : 0;
}

static void *function_of(const struct tables *t, const char *name) {
  uint32_t symbols = count(t);
  for (uint32_t i = 0; i < symbols; i++) {
    const ElfW(Sym) *s = &t->symbols[i];
    if ((s->st_info & 0xf) == STT_FUNC && s->st_shndx != SHN_UNDEF && !strcmp(t->names + s->st_name, name))
      return (void *)(uintptr_t)(t->base + s->st_value);
  }
  return NULL;
}

/* ---- the libraries, in their order ----------------------------------------------------------------------------------- */

struct search {
  const char *name;
  bool after; /* this library has been passed */
  void *found;
};

static bool is_this_library(const struct dl_phdr_info *info) {
  uintptr_t offset = (uintptr_t)&cp_libc_function - info->dlpi_addr;
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const ElfW(Phdr) *h = &info->dlpi_phdr[i];
    if (h->p_type == PT_LOAD && offset - h->p_vaddr < h->p_memsz) return true;
  }
  return false;
}

static int look(struct dl_phdr_info *info, size_t size, void *argument) {
  struct search *s = argument;
  bool own = is_this_library(info);
  (void)size;
  if (s->after && !own) {
    struct tables t = tables_of(info);
    s->found = function_of(&t, s->name);
  }
  s->after = s->after || own;
  return s->found != NULL;
}

void *cp_libc_function(const char *name) {
  struct search s = {.name = name};
  dl_iterate_phdr(look, &s);
  if (!s.found) dl_iterate_phdr(look, &s); /* this library has been loaded late: the others, from the first one on */
  return s.found;
}
