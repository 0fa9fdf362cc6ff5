/* Questions about the driver and its devices. */
#include "stub.h"
#include <stdio.h>

static bool valid(CUdevice device) { return device >= 0 && device < stub.devices; }

CUresult cuDriverGetVersion(int *version) {
  ENTER_EARLY(cuDriverGetVersion);
  if (!version) return CUDA_ERROR_INVALID_VALUE;
  *version = machine_version();
  return CUDA_SUCCESS;
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
  snprintf(name, (size_t)length, MACHINE_NAME);
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device) {
  ENTER(cuDeviceGetUuid_v2);
  if (!uuid) return CUDA_ERROR_INVALID_VALUE;
  if (!valid(device)) return CUDA_ERROR_INVALID_DEVICE;
  machine_uuid(stub.device[device].ordinal, uuid->bytes);
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
