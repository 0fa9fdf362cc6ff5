/* Physical memory that the program makes itself (cuMemCreate), in a job with memory by grant.
 *
 * The program gets numbers of ours.  The driver's handle behind a number changes when the job moves: handle_moves.c saves
 * the content, unmaps and releases everything, and later makes it anew at the same addresses.  handle_grants.c has it
 * granted as persistent memory that no device buffer lies behind.  handle_calls.c has the entry points, handles.c the books.
 * What others have access to (a handle that stays) does not move, and pins the job. */
#ifndef CARPOOL_CUDA_HANDLES_H
#define CARPOOL_CUDA_HANDLES_H
#include "cuda/gate.h"

struct cp_mapping {
  CUdeviceptr address;
  uint64_t bytes, offset;
  unsigned long long flags;
  struct cp_handle *handle;
  CUmemAccessDesc access; /* if `open` */
  uint32_t open;
};

struct cp_handle {
  CUmemGenericAllocationHandle real; /* 0: it has moved out */
  uint64_t bytes, place; /* in the saved content */
  CUmemAllocationProp prop;
  uint32_t references, mappings; /* the program's */
  uint32_t number;
  uint8_t used, stays;
};

/* handles.c.  The lock comes after the gate lock; all below need it, unless it says otherwise. */
void cp_handles_lock(void);
void cp_handles_unlock(void);
struct cp_handle *cp_handle_new(CUmemGenericAllocationHandle real, uint64_t bytes, const CUmemAllocationProp *prop); /* NULL: no room */
struct cp_handle *cp_handle_of(CUmemGenericAllocationHandle number); /* NULL: not one of ours */
CUmemGenericAllocationHandle cp_handle_number(const struct cp_handle *h);
/* Is it over?  Then its record is free, and what it was is in `was`. */
bool cp_handle_over(struct cp_handle *h, struct cp_handle *was);
struct cp_handle *cp_handle_next(struct cp_handle *h); /* NULL: the first */
bool cp_mapping_add(struct cp_mapping new);
void cp_mapping_remove(struct cp_mapping *m);
struct cp_mapping *cp_mapping_at(CUdeviceptr address); /* which the address lies in */
struct cp_mapping *cp_mapping_from(CUdeviceptr address); /* the first that ends beyond the address */
struct cp_mapping *cp_mapping_next(struct cp_mapping *m); /* by address; NULL: the first */
bool cp_mappings_cover(CUdeviceptr address, uint64_t bytes); /* whole ones, without gaps */
bool cp_handles_hold(CUdeviceptr address); /* lock not held */
void cp_handles_made(int64_t bytes); /* so much more exists: tells the seat */
void cp_handles_forked(bool child);

/* handle_grants.c.  No lock held. */
bool cp_handles_claim(uint64_t bytes); /* waits; false: refused */
void cp_handles_unclaim(uint64_t bytes, bool at_once); /* all that is idle is given back, or what is worth a message */
void cp_handles_forget_grants(void); /* in a child */

/* handle_calls.c.  No lock held.  Others get access: it does not move any more. */
CUmemGenericAllocationHandle cp_handle_pinned(CUmemGenericAllocationHandle number); /* the driver's handle */
CUdeviceptr cp_mappings_pinned(CUdeviceptr address, uint64_t bytes); /* the address */

/* handle_moves.c */
void cp_handles_offload(void);  /* helper thread, asked by the daemon */
void cp_handles_restore(void);  /* gate lock held, the turn begins */
bool cp_handles_away(void);
void cp_handles_forget_moves(void); /* in a child */
#endif
