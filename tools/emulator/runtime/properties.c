/* What a device is. */
#include "internal.h"

static int attribute_of(int device, int attribute) {
  int value = 0;
  cuDeviceGetAttribute(&value, (CUdevice_attribute)attribute, device);
  return value;
}

static void fill(struct cudaDeviceProp *properties, int device) {
#define PROPERTY(member, attribute, number) properties->member = (typeof(properties->member))attribute_of(device, attribute);
#include "properties.def"
#include VERSION_FILE(properties, def)
#undef PROPERTY
}

int runtime_properties(struct cudaDeviceProp *properties, int device) {
  if (!properties) return cudaErrorInvalidValue;
  memset(properties, 0, sizeof *properties);
  CUresult result = cuDeviceGetName(properties->name, sizeof properties->name, device);
  if (!result) result = cuDeviceGetUuid_v2(&properties->uuid, device);
  if (!result) result = cuDeviceTotalMem_v2(&properties->totalGlobalMem, device);
  if (!result) fill(properties, device);
  return result;
}
