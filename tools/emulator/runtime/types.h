/* Our own declarations of the types of the CUDA runtime: what runtime.h needs, no more.
 *
 * tests/emulator/test_runtime_header.py compares every number, size and offset with NVIDIA's header where there is one.
 * Handles are the driver's.  What differs between the versions of the runtime is in layout_12.h and layout_13.h:
 * EMULATED_RUNTIME says which one is compiled. */
#ifndef EMULATOR_RUNTIME_TYPES_H
#define EMULATOR_RUNTIME_TYPES_H
#include "cuda/driver/driver.h"

#ifndef EMULATED_RUNTIME
#define EMULATED_RUNTIME 13
#endif
/* The version's own file: VERSION_FILE(layout, h) is "layout_13.h". */
#define VERSION_TEXT(text) #text
#define VERSION_NAME(name, version, kind) VERSION_TEXT(name##_##version.kind)
#define VERSION_OF(name, version, kind) VERSION_NAME(name, version, kind)
#define VERSION_FILE(name, kind) VERSION_OF(name, EMULATED_RUNTIME, kind)

typedef CUstream cudaStream_t;
typedef CUevent cudaEvent_t;
typedef CUgraph cudaGraph_t;
typedef CUgraphNode cudaGraphNode_t;
typedef CUgraphExec cudaGraphExec_t;
typedef CUmemoryPool cudaMemPool_t;
typedef struct CUuserObject_st *cudaUserObject_t;
typedef CUkernel cudaKernel_t;
typedef unsigned long long cudaGraphConditionalHandle;
typedef struct cudaGraphNodeParams cudaGraphNodeParams; /* never looked into */

typedef enum cudaError {
#define ERROR(name, number, text) name = number,
#define STICKY ERROR
#include "errors.def"
#undef STICKY
#undef ERROR
} cudaError_t;
typedef void (*cudaHostFn_t)(void *argument);
typedef void (*cudaStreamCallback_t)(cudaStream_t stream, cudaError_t status, void *argument);

enum cudaDeviceAttr {
#define PROPERTY(member, attribute, number) attribute = number,
#include "properties.def"
#include VERSION_FILE(properties, def)
#undef PROPERTY
};
enum cudaFuncAttribute {
  cudaFuncAttributeMaxDynamicSharedMemorySize = 8, cudaFuncAttributePreferredSharedMemoryCarveout = 9,
  cudaFuncAttributeNonPortableClusterSizeAllowed = 14
};
enum cudaMemcpyKind {
  cudaMemcpyHostToHost = 0, cudaMemcpyHostToDevice = 1, cudaMemcpyDeviceToHost = 2, cudaMemcpyDeviceToDevice = 3,
  cudaMemcpyDefault = 4
};
enum cudaMemoryType {
  cudaMemoryTypeUnregistered = 0, cudaMemoryTypeHost = 1, cudaMemoryTypeDevice = 2, cudaMemoryTypeManaged = 3
};
enum cudaStreamCaptureStatus {
  cudaStreamCaptureStatusNone = 0, cudaStreamCaptureStatusActive = 1, cudaStreamCaptureStatusInvalidated = 2
};
enum cudaGraphMemAttributeType { cudaGraphMemAttrUsedMemHigh = 1 };
enum cudaStreamCaptureMode {
  cudaStreamCaptureModeGlobal = 0, cudaStreamCaptureModeThreadLocal = 1, cudaStreamCaptureModeRelaxed = 2
};
enum cudaMemPoolAttr {
  cudaMemPoolAttrReleaseThreshold = 4, cudaMemPoolAttrReservedMemCurrent = 5, cudaMemPoolAttrReservedMemHigh = 6,
  cudaMemPoolAttrUsedMemCurrent = 7, cudaMemPoolAttrUsedMemHigh = 8
};
enum cudaDriverEntryPointQueryResult {
  cudaDriverEntryPointSuccess = 0, cudaDriverEntryPointSymbolNotFound = 1, cudaDriverEntryPointVersionNotSufficent = 2
};
#define cudaInvalidDeviceId ((int)-2)
#define cudaOccupancyDisableCachingOverride 0x01
#define cudaStreamNonBlocking 0x01
#define cudaEventDisableTiming 0x02
#define cudaEventInterprocess 0x04

#define LAYOUT(type, bytes, member, offset) \
  _Static_assert(sizeof(type) == bytes && offsetof(type, member) == offset, #type " does not have its layout")
typedef struct dim3 { unsigned int x, y, z; } dim3;
typedef struct cudaIpcMemHandle_st { char reserved[64]; } cudaIpcMemHandle_t;
typedef struct cudaIpcEventHandle_st { char reserved[64]; } cudaIpcEventHandle_t;
typedef CUgraphEdgeData cudaGraphEdgeData;
enum cudaMemLocationType { cudaMemLocationTypeDevice = 1 };
enum cudaMemAccessFlags { cudaMemAccessFlagsProtReadWrite = 3 };
struct cudaMemLocation { enum cudaMemLocationType type; int id; };
struct cudaMemAccessDesc { struct cudaMemLocation location; enum cudaMemAccessFlags flags; };

/* The driver's attributes of launches have the same numbers and the same layout. */
typedef CUlaunchAttribute cudaLaunchAttribute;
typedef struct cudaLaunchConfig_st {
  dim3 gridDim, blockDim;
  size_t dynamicSmemBytes;
  cudaStream_t stream;
  cudaLaunchAttribute *attrs;
  unsigned int numAttrs;
} cudaLaunchConfig_t;

#include VERSION_FILE(layout, h)
struct cudaFuncAttributes {
  size_t sharedSizeBytes, constSizeBytes, localSizeBytes;
  int maxThreadsPerBlock, numRegs, ptxVersion, binaryVersion, cacheModeCA, maxDynamicSharedSizeBytes;
  int preferredShmemCarveout, clusterDimMustBeSet, requiredClusterWidth, requiredClusterHeight, requiredClusterDepth;
  int clusterSchedulingPolicyPreference, nonPortableClusterSizeAllowed;
  int reserved[16];
};

LAYOUT(struct cudaFuncAttributes, 144, reserved, 76);
LAYOUT(cudaLaunchConfig_t, 56, attrs, 40);
LAYOUT(cudaLaunchAttribute, 72, value, 8);
LAYOUT(struct cudaMemAccessDesc, 12, flags, 8);
LAYOUT(cudaGraphEdgeData, 8, type, 2);
#undef LAYOUT
#endif
