/* Part of driver.h: what programs share with other interfaces and with other devices. */
#ifndef CARPOOL_DRIVER_INTEROP_H
#define CARPOOL_DRIVER_INTEROP_H

/* memory and semaphores of other interfaces */
CU_CALL(cuImportExternalMemory, CUexternalMemory *memory, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *what);
CU_CALL(cuImportExternalSemaphore, CUexternalSemaphore *semaphore, const CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC *what);
CU_CALL(cuDestroyExternalSemaphore, CUexternalSemaphore semaphore);
CU_PTSZ(cuSignalExternalSemaphoresAsync, const CUexternalSemaphore *list,
        const CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS *params, unsigned int count, CUstream stream);
CU_PTSZ(cuWaitExternalSemaphoresAsync, const CUexternalSemaphore *list,
        const CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS *params, unsigned int count, CUstream stream);
CU_PTSZ(cuGraphicsMapResources, unsigned int count, CUgraphicsResource *list, CUstream stream);
CU_PTSZ(cuGraphicsUnmapResources, unsigned int count, CUgraphicsResource *list, CUstream stream);

/* multicast */
CU_CALL(cuMulticastCreate, CUmemGenericAllocationHandle *handle, const CUmulticastObjectProp *prop);
CU_CALL(cuMulticastAddDevice, CUmemGenericAllocationHandle handle, CUdevice device);
CU_CALL(cuMulticastBindMem, CUmemGenericAllocationHandle handle, size_t offset, CUmemGenericAllocationHandle memory,
        size_t memory_offset, size_t bytes, unsigned long long flags);
CU_CALL(cuMulticastBindAddr, CUmemGenericAllocationHandle handle, size_t offset, CUdeviceptr address, size_t bytes,
        unsigned long long flags);
#endif
