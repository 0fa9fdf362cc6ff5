/* Pieces of device memory that the process has, counted in the seat. */
#ifndef CARPOOL_CUDA_MEMORY_H
#define CARPOOL_CUDA_MEMORY_H
#include "cuda/turn/tracked_objects.h"

enum cp_piece_kind { CP_NO_PIECE = 0, CP_ADDRESS, CP_ARRAY, CP_HANDLE, CP_MAPPING };

struct cp_piece {
  uint64_t key; /* address, array or handle */
  uint64_t bytes;
  uint64_t handle;   /* of a mapping */
  uint32_t mappings; /* of a handle */
  uint8_t kind, ephemeral, released;
};

/* An allocation has returned r; key: where the driver has put the address, array or handle.  Returns r. */
CUresult cp_memory_came(CUresult r, enum cp_piece_kind kind, const void *key, uint64_t bytes, const void *caller);
/* Before a piece is freed (afterwards another thread may get the same address), and what became of it.  Returns r. */
struct cp_piece cp_memory_goes(enum cp_piece_kind kind, uint64_t key);
CUresult cp_memory_gone(CUresult r, struct cp_piece p);
/* A handle's memory lives until it is released and no longer mapped. */
void cp_memory_released(uint64_t handle);
void cp_memory_mapped(uint64_t address, uint64_t bytes, uint64_t handle);
void cp_memory_unmapped(uint64_t address, uint64_t bytes);
uint64_t cp_memory_live(void); /* bytes */
/* share_limit.c.  Before an allocation of so many bytes, which may ask for a seat first: may the process have them?  Waits for
 * the answer.  True: cp_memory_came is called in any case, and settles it. */
bool cp_share_claim(uint64_t bytes);
void cp_share_settle(void); /* books' lock held */
#define CP_SHARE(bytes, call) (cp_share_claim(bytes) ? (call) : CUDA_ERROR_OUT_OF_MEMORY)
void cp_share_trim(void); /* something has been freed.  Holds no lock of ours */
uint64_t cp_memory_live_locked(void); /* books' lock held */
#endif
