/* Copies of one row of bytes, shared by copy.c and copy3d.c. */
#ifndef CARPOOL_STUB_COPY_H
#define CARPOOL_STUB_COPY_H
#include "stub.h"
bool stub_is_device(const void *address); /* device or managed memory */
bool stub_is_pinned(const void *address);
/* `wait`: the call is of the kind that waits where host memory takes part.  Without it only pageable memory waits. */
CUresult stub_copy(CUstream stream, const void *to, const void *from, size_t bytes, bool wait);
bool stub_stream_captures(CUstream handle);
#endif
