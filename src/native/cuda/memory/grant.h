/* Folder cuda/memory/: a job's memory on a GPU: the calls that get and free it, memory by grant with its residue, memory
 * that the driver itself provides, and the weights of services.  What maps, counts or limits device memory enters.
 * May include: base, cuda, cuda/turn, weights. */
/* Memory by grant in a job's process.
 *
 * There are two ranges of addresses that never move, one per class as packets number them: the persistent one (0) is
 * backed by the job's device buffer, the ephemeral one (1) by its lane.  extents.c maps what the daemon sends, from
 * the begin of a range and without gaps.  segments.c cuts the ranges into what cuMemAlloc returns; pools.c knows what
 * is where.  residue.c carries live ephemeral content over the time without the turn and asks for room for it;
 * live_blocks.c says what is live. */
#ifndef CARPOOL_CUDA_GRANT_H
#define CARPOOL_CUDA_GRANT_H
#include "cuda/gate.h"

#define CP_FAILING_US 10000000u /* so long a call that the job cannot do without is tried again */
#define CP_PIECE CP_CHUNK /* limits and extents are multiples of it */

/* extents.c.  Its lock comes after the gate lock. */
void cp_extents_attach(size_t window);
CUdeviceptr cp_extents_base(uint32_t class_); /* 0: the driver has not been initialised */
/* What waits in the channel is taken.  wait: until the lane and the device buffer are those that the seat names. */
void cp_extents_take(bool wait);
uint64_t cp_extents_mapped(uint32_t class_); /* bytes */
/* For debugging: a use of the memory without the turn is an error of the driver's. */
void cp_extents_close(void);
/* From now on work may use what is mapped, until it is let go of.  False: it cannot be opened, or is not all there. */
bool cp_extents_hold(void);
void cp_extents_let_go(void); /* the turn ends, drained */
bool cp_extent_map(CUdeviceptr address, uint64_t bytes, int fd, bool open); /* with access, or without */
void cp_extents_stop(void); /* the process is about to end */
void cp_extents_fork(void);
void cp_extents_forked(bool child);

/* pools.c, segments.c */
bool cp_segments_serve(void); /* is memory by grant here? */
bool cp_segments_hold(CUdeviceptr address);
CUresult cp_segment_alloc(CUdeviceptr *address, size_t bytes, bool allocator);
/* This thread's latest request was refused so that PyTorch gives back its cache and asks again. */
bool cp_segment_refused(void);
CUresult cp_segment_free(CUdeviceptr address);
/* Of the segment to which the address belongs; false: to none. */
bool cp_segment_range(CUdeviceptr address, CUdeviceptr *base, size_t *bytes);
void cp_segments_lost(void); /* the program has reset the only context: nothing that was allocated is there any more */
void cp_segments_give_back(size_t least); /* what is granted and not used, if it is so much; 0: if it is worth it */
void cp_segments_trim(void); /* helper thread, without the turn: give back what has not been used */
uint64_t cp_segments_live(void);
uint64_t cp_segments_extent(uint32_t class_); /* bytes that must be mapped while the gate is open */
/* Room for residue in the persistent range, within what is granted; 0: there is none.  Pool lock held. */
CUdeviceptr cp_segments_spare(uint64_t bytes);
void cp_segments_spared(void); /* it is needed no longer.  No lock needed */

const struct cp_pool *cp_segments_ephemeral(void); /* pool lock held */

/* Bytes of the ephemeral range, from its begin. */
struct cp_live_run {
  uint64_t start, length;
};

/* live_blocks.c */
bool cp_live_ask(void);    /* at a boundary, gate shut: is a list wanted? */
void cp_live_await(void);  /* helper thread: until it is there, or it takes too long */
void cp_live_forget(void); /* the list is of no use any more */
/* Pool lock held.  In order of address, apart from each other.  Valid until the next call. */
const struct cp_live_run *cp_live_runs(size_t *count);

/* handle_grants.c.  Memory that the program makes itself (handles.h): bytes of the persistent grant */
uint64_t cp_handles_used(void);
uint64_t cp_handles_granted(void);
uint64_t cp_handles_needed(void); /* of what is granted: what is used.  Pool lock held */
void cp_handles_lower(void); /* nothing is granted for it beyond what is used.  Pool lock held */

/* residue.c.  Gate lock held. */
bool cp_residue_save(void); /* pool lock held, gate shut, drained.  False: there is no memory for it */
void cp_residue_restore(void);
void cp_residue_forget(void); /* nobody needs it any more */
uint64_t cp_residue_bytes(void);
/* Submits copies to a stream of ours, and waits until they have ended.  helper: by the helper thread. */
CUresult cp_residue_copied(CUresult (*submit)(CUstream stream), bool helper);
void cp_residue_drop(CUcontext context); /* it is about to go.  Books' lock held */
/* Helper thread */
void cp_room_ask(void);      /* grow lock held, without the turn */
uint64_t cp_room_kept(void); /* bytes that it is to have in persistent memory beyond those in use */
#endif
