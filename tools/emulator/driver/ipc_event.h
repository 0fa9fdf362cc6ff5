/* What an event between processes (CU_EVENT_INTERPROCESS) is: a slot in a table that all processes of the machine share. */
#ifndef CARPOOL_STUB_IPC_EVENT_H
#define CARPOOL_STUB_IPC_EVENT_H
#include "stub.h"

struct stub_ipc { struct stub_slot *slot; uint32_t generation; };
CUresult stub_ipc_new(struct stub_ipc *ipc);
void stub_ipc_free(struct stub_ipc ipc); /* by the process that made it */
void stub_ipc_tell(struct stub_ipc ipc, CUipcEventHandle *handle);
CUresult stub_ipc_open(const CUipcEventHandle *handle, struct stub_ipc *ipc);

/* The work of a recording, which is the event's latest from now on. */
struct stub_op *stub_ipc_record(struct stub_ipc ipc);
/* The latest recording as it is now: work that waits for it; whether it is done; waiting for it. */
struct stub_op *stub_ipc_wait(struct stub_ipc ipc);
bool stub_ipc_done(struct stub_ipc ipc);
void stub_ipc_synchronize(struct stub_ipc ipc);
#endif
