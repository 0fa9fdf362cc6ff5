/* Objects by number. */
#include "library.h"
#include <pthread.h>

static struct object **objects; /* by number; NULL: free */
static int count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* The lowest free number but 0, with room for it. */
static int free_number(void) {
  int number = 1;
  while (number < count && objects[number]) number++;
  if (number >= count) {
    objects = realloc(objects, (size_t)(number + 1) * sizeof *objects);
    count = number + 1;
  }
  return number;
}

int number_of(struct object *object) {
  pthread_mutex_lock(&lock);
  int number = free_number();
  objects[number] = object;
  pthread_mutex_unlock(&lock);
  return number;
}

struct object *numbered(uintptr_t number) {
  pthread_mutex_lock(&lock);
  struct object *found = (int)number > 0 && (int)number < count ? objects[(int)number] : NULL;
  pthread_mutex_unlock(&lock);
  return found;
}

void forget_number(uintptr_t number) {
  struct object *object = numbered(number);
  pthread_mutex_lock(&lock);
  if (object) objects[(int)number] = NULL;
  pthread_mutex_unlock(&lock);
  free(object);
}
