/* Folder weights/: the weights of services: groups that are loaded one by one, traps for touches of those that are not
 * there, and the demands of a worker for turns.  Nothing of training jobs enters.
 * May include: base. */
/* Weights that come to the device group by group, in order of use, while the first groups are computed with already.
 *
 * The weights' memory is a file that every process of the owner maps.  It begins with a header, which says what is there;
 * the groups follow, each on pages of its own.  The image, a file with the same offsets, lies in the host and never
 * changes.
 * A process computes in a mapping without access to groups that are not there: a touch waits for the group (the trap),
 * so whatever a model uses in whatever order, it never sees anything but its weights. */
#ifndef CARPOOL_GROUPS_H
#define CARPOOL_GROUPS_H
#include "base/common.h"

#define CP_GROUPS_MAGIC 0x43505747u
#define CP_GROUPS_KEY 32
#define CP_GROUPS_MOST (1u << 20)
enum { CP_GROUP_EMPTY = 0, CP_GROUP_THERE = 1 };

struct cp_groups_header {
  uint32_t magic; /* written last: the rest is valid */
  uint32_t count;
  uint8_t key[CP_GROUPS_KEY]; /* of the weights and their order */
  uint32_t sequence;          /* futex: changes when a group comes */
  uint32_t reserved;
  uint32_t state[];           /* of each group; THERE is written after its last byte */
};

struct cp_groups;

/* Group k lies in both files from bounds[k] to bounds[k + 1], whole pages; the header before the first.  Both files must
 * have bounds[count] bytes.  NULL and errno: EINVAL, EMFILE (256 are open), EBUSY (others are being brought there),
 * ENOMEM, or what the kernel says.  What other weights have left in the header is forgotten. */
struct cp_groups *cp_groups_open(int device, int image, const uint64_t *bounds, uint32_t count, const uint8_t *key);
/* Nobody computes with these weights in this process, or ever will with what was mapped. */
void cp_groups_close(struct cp_groups *g);
/* Where the weights can be read: group k is at this address plus bounds[k]. */
const void *cp_groups_address(const struct cp_groups *g);
/* Begin to bring what is not there, in order, by a thread of its own; nothing to do if all is there.  One process copies,
 * others wait and take over where it dies.  Called before computing, never during it.  0, or an errno. */
int cp_groups_load(struct cp_groups *g);
/* Until the first n groups are there.  0, or ECANCELED: nobody here is bringing them. */
int cp_groups_wait(struct cp_groups *g, uint32_t n);
/* No further group is begun; returns when the present one is there.  Touches of missing ones wait for the next load. */
void cp_groups_stop(struct cp_groups *g);
/* The memory is wanted for something else: nothing is there any more.  Never while anybody computes.  0, or EBUSY:
 * a process is bringing groups. */
int cp_groups_drop(struct cp_groups *g);
/* Another process has dropped the weights: touches wait from now on.  The next load would do that, too, but it takes some
 * 10 ms for 256 MiB in small pages, which a request need not wait for. */
void cp_groups_shut(struct cp_groups *g);
/* After they were dropped: their memory is in another file from now on, of as many bytes.  Nothing happens if it is the same.
 * Never while anybody computes.  0, or an errno as of cp_groups_open. */
int cp_groups_move(struct cp_groups *g, int device);
/* The same for all groups of this process whose key begins with these 8 bytes.  False: it failed. */
bool cp_groups_moved(uint64_t key, int device);
/* They have been dropped: cp_groups_clear closes them, and lets go of their pages, which others may have now. */
void cp_groups_dropped(uint64_t key);
void cp_groups_clear(void);
bool cp_groups_any_dropped(void);
/* The turn is over in the middle of computing with the weights whose key begins with these 8 bytes: all touches wait from
 * now on, and nothing is brought.  With `bar` false the next turn has begun: they are loaded. */
void cp_groups_bar(uint64_t key, bool bar);
/* Returns when nothing of these weights is being copied; whatever waits for the rest waits on. */
void cp_groups_halt(uint64_t key);
/* After that, where nothing traps: all is there when it returns.  False: it could not be brought just now. */
bool cp_groups_back(uint64_t key);
uint32_t cp_groups_there(const struct cp_groups *g);
/* How many touches had to wait in this process, and how long in all. */
void cp_groups_waits(const struct cp_groups *g, uint64_t *touches, uint64_t *waited_us);
/* In the handler of SIGSEGV: true if the touch may be tried again. */
bool cp_groups_trap(const void *address);
#endif
