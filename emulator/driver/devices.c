/* Questions about the driver and its devices. */
#include "stub.h"
#include <stdio.h>

static bool valid(CUdevice device) { return device >= 0 && device < stub.devices; }

CUresult cuDriverGetVersion(int *version) {
  ENTER_EARLY(cuDriverGetVersion);
  if (!version) return CUDA_ERROR_INVALID_VALUE;
  *version = STUB_VERSION;
  return CUDA_SUCCESS;
}

static const struct { CUresult error; const char *name; } errors[] = {
#define NAME(error) {error, #error}
  NAME(CUDA_SUCCESS), NAME(CUDA_ERROR_INVALID_VALUE), NAME(CUDA_ERROR_OUT_OF_MEMORY), NAME(CUDA_ERROR_NOT_INITIALIZED),
  NAME(CUDA_ERROR_DEINITIALIZED), NAME(CUDA_ERROR_STUB_LIBRARY), NAME(CUDA_ERROR_NO_DEVICE),
  NAME(CUDA_ERROR_INVALID_DEVICE), NAME(CUDA_ERROR_INVALID_IMAGE), NAME(CUDA_ERROR_INVALID_CONTEXT),
  NAME(CUDA_ERROR_MAP_FAILED), NAME(CUDA_ERROR_ALREADY_MAPPED), NAME(CUDA_ERROR_NOT_MAPPED),
  NAME(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED), NAME(CUDA_ERROR_INVALID_PTX), NAME(CUDA_ERROR_FILE_NOT_FOUND),
  NAME(CUDA_ERROR_OPERATING_SYSTEM), NAME(CUDA_ERROR_INVALID_HANDLE), NAME(CUDA_ERROR_ILLEGAL_STATE),
  NAME(CUDA_ERROR_NOT_FOUND), NAME(CUDA_ERROR_NOT_READY), NAME(CUDA_ERROR_ILLEGAL_ADDRESS),
  NAME(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED), NAME(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED),
  NAME(CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE), NAME(CUDA_ERROR_CONTEXT_IS_DESTROYED),
  NAME(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED), NAME(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED),
  NAME(CUDA_ERROR_LAUNCH_FAILED), NAME(CUDA_ERROR_NOT_PERMITTED), NAME(CUDA_ERROR_NOT_SUPPORTED),
  NAME(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED), NAME(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED),
  NAME(CUDA_ERROR_STREAM_CAPTURE_MERGE), NAME(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED),
  NAME(CUDA_ERROR_STREAM_CAPTURE_UNJOINED), NAME(CUDA_ERROR_STREAM_CAPTURE_ISOLATION),
  NAME(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT), NAME(CUDA_ERROR_CAPTURED_EVENT),
  NAME(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD), NAME(CUDA_ERROR_TIMEOUT), NAME(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE),
  NAME(CUDA_ERROR_UNKNOWN),
#undef NAME
};

static const char *error_name(CUresult error) {
  for (unsigned i = 0; i < sizeof errors / sizeof *errors; i++)
    if (errors[i].error == error) return errors[i].name;
  return NULL;
}

CUresult cuGetErrorName(CUresult error, const char **text) {
  ENTER_EARLY(cuGetErrorName);
  *text = error_name(error);
  return *text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult error, const char **text) {
  ENTER_EARLY(cuGetErrorString);
  *text = error_name(error) ? (error ? "the stub driver's error of that name" : "no error") : NULL;
  return *text ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal) {
  ENTER(cuDeviceGet);
  if (!device) return CUDA_ERROR_INVALID_VALUE;
  if (!valid(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *count) {
  ENTER(cuDeviceGetCount);
  if (!count) return CUDA_ERROR_INVALID_VALUE;
  *count = stub.devices;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *name, int length, CUdevice device) {
  ENTER(cuDeviceGetName);
  if (!name || length <= 0) return CUDA_ERROR_INVALID_VALUE;
  if (!valid(device)) return CUDA_ERROR_INVALID_DEVICE;
  snprintf(name, (size_t)length, "Stub GPU");
  return CUDA_SUCCESS;
}

static CUuuid uuid_of(int ordinal) {
  CUuuid uuid;
  memcpy(uuid.bytes, "carpool-stub-gpu", sizeof uuid.bytes);
  uuid.bytes[15] = (char)('0' + ordinal);
  return uuid;
}

void stub_uuid_text(int ordinal, char text[STUB_UUID_TEXT]) {
  CUuuid uuid = uuid_of(ordinal);
  char *at = text + sprintf(text, "%s", getenv("CARPOOL_STUB_MIG") ? "MIG" : "GPU");
  for (unsigned i = 0; i < sizeof uuid.bytes; i++) {
    bool dash = i == 0 || i == 4 || i == 6 || i == 8 || i == 10;
    at += sprintf(at, "%s%02x", dash ? "-" : "", (unsigned char)uuid.bytes[i]);
  }
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device) {
  ENTER(cuDeviceGetUuid_v2);
  if (!uuid) return CUDA_ERROR_INVALID_VALUE;
  if (!valid(device)) return CUDA_ERROR_INVALID_DEVICE;
  *uuid = uuid_of(stub.device[device].ordinal);
  return CUDA_SUCCESS;
}
FORWARD(cuDeviceGetUuid, cuDeviceGetUuid_v2, (uuid, device), CUuuid *uuid, CUdevice device)

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
  ENTER(cuDeviceTotalMem_v2);
  if (!bytes) return CUDA_ERROR_INVALID_VALUE;
  if (!valid(device)) return CUDA_ERROR_INVALID_DEVICE;
  *bytes = stub.device[device].bytes;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device) {
  ENTER(cuDeviceGetAttribute);
  if (!value) return CUDA_ERROR_INVALID_VALUE;
  if (!valid(device)) return CUDA_ERROR_INVALID_DEVICE;
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *value = 1024; break;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE: *value = 32; break;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *value = 8; break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = 9; break;
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID: *value = stub.device[device].ordinal + 1; break;
    case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT: *value = 2; break;
    case CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES:
    case CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_COMPUTE_MODE:
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
    case CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID:
    case CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID:
    case CU_DEVICE_ATTRIBUTE_MPS_ENABLED: *value = 0; break;
    case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS:
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
    case CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY:
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM:
    case CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH:
    case CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS:
    case CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR: *value = 1; break;
    default: *value = 0; /* the real driver knows more of them than native/cuda/driver/types.h */
  }
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char *text, int length, CUdevice device) {
  ENTER(cuDeviceGetPCIBusId);
  if (!text || length < 13) return CUDA_ERROR_INVALID_VALUE;
  if (!valid(device)) return CUDA_ERROR_INVALID_DEVICE;
  snprintf(text, (size_t)length, "0000:%02x:00.0", (unsigned)stub.device[device].ordinal + 1);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetByPCIBusId(CUdevice *device, const char *text) {
  ENTER(cuDeviceGetByPCIBusId);
  unsigned bus;
  if (!device || !text || sscanf(text, "%*x:%x:", &bus) != 1) return CUDA_ERROR_INVALID_VALUE;
  for (*device = 0; *device < stub.devices; ++*device)
    if (stub.device[*device].ordinal + 1 == (int)bus) return CUDA_SUCCESS;
  return CUDA_ERROR_INVALID_DEVICE;
}

CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer) {
  ENTER(cuDeviceCanAccessPeer);
  if (!valid(device) || !valid(peer)) return CUDA_ERROR_INVALID_DEVICE;
  *can = device != peer;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attribute, CUdevice from, CUdevice to) {
  ENTER(cuDeviceGetP2PAttribute);
  if (!valid(from) || !valid(to) || from == to) return CUDA_ERROR_INVALID_DEVICE;
  *value = attribute == CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED;
  return CUDA_SUCCESS;
}
