/* The driver's types for semaphores of other interfaces; part of types.h. */
#ifndef CARPOOL_DRIVER_SEMAPHORES_H
#define CARPOOL_DRIVER_SEMAPHORES_H

typedef enum CUexternalSemaphoreHandleType_enum {
  CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD = 9
} CUexternalSemaphoreHandleType;
typedef struct CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC_st {
  CUexternalSemaphoreHandleType type;
  union {
    int fd;
    struct { void *handle; const void *name; } win32;
  } handle;
  unsigned int flags, reserved[16];
} CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC;
typedef struct CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS_st {
  struct {
    struct { unsigned long long value; } fence;
    unsigned int reserved[16];
  } params;
  unsigned int flags, reserved[16];
} CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS;
typedef struct CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS_st {
  struct {
    struct { unsigned long long value; } fence;
    unsigned int reserved[16];
  } params;
  unsigned int flags, reserved[16];
} CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS;
#endif
