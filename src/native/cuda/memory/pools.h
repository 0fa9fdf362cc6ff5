/* The pools behind segments, for pools.c and segments.c.  The pool lock is held, unless it says otherwise. */
#ifndef CARPOOL_CUDA_POOLS_H
#define CARPOOL_CUDA_POOLS_H
#include "cuda/memory/grant.h"

#define CP_IN_USE 0u /* a block's stamp; otherwise it was freed during a capture: the sweep that gives it back */

extern CP_HIDDEN struct cp_pool cp_pools[2]; /* by class */

static inline CUdeviceptr cp_device(const void *p) { return (CUdeviceptr)(uintptr_t)p; }
static inline void *cp_pool_address(CUdeviceptr address) { return (void *)(uintptr_t)address; }

/* No lock held.  Make them, if the driver has been initialised; are they there? */
bool cp_pools_start(void);
bool cp_pools_made(void);

void cp_pools_tell(void);                      /* the seat: what is live and used */
void cp_pools_tell_peak(uint32_t class_);
uint64_t cp_pools_extent(uint32_t class_);     /* bytes in whole pieces */
void cp_pools_give_back_spare(void);           /* room for residue, if it is needed no longer */
void cp_pools_free_all(uint32_t class_);       /* but for room for residue */
struct cp_block *cp_pools_segment_at(uint32_t class_, CUdeviceptr address); /* NULL: none begins there */
uint32_t cp_pools_next_used(const struct cp_pool *p, uint32_t block);       /* this one or a later one; 0: none */
#endif
