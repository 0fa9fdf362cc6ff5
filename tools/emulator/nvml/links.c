/* The stub NVML: how devices are reached and connected: by PCI, to one another, over fabrics. */
#include "stub.h"

#include <stdio.h>

/* The bus is the device's number on the machine and one, as the driver says. */
API nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *id, nvmlDevice_t *device)
{
    unsigned int bus = 0;
    ENTER(NULL, "nvmlDeviceGetHandleByPciBusId_v2");
    if (sscanf(id, "%*x:%x:", &bus) != 1)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (bus == 0 || stub_device_numbered(bus - 1, device) != NVML_SUCCESS)
        return NVML_ERROR_NOT_FOUND;
    return NVML_SUCCESS;
}

enum { P2P_READ = 0, P2P_WRITE = 1, P2P_STATUS_OK = 0, P2P_STATUS_NOT_SUPPORTED = 5 };

API nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t first, nvmlDevice_t second, unsigned int what, unsigned int *status)
{
    ENTER(first, "nvmlDeviceGetP2PStatus");
    bool possible = first != second && (what == P2P_READ || what == P2P_WRITE);
    *status = possible ? P2P_STATUS_OK : P2P_STATUS_NOT_SUPPORTED;
    return NVML_SUCCESS;
}

/* There is no NVLink and no fabric. */
API nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t device, unsigned int link, unsigned int *type)
{
    ENTER(device, "nvmlDeviceGetNvLinkRemoteDeviceType");
    (void) link, (void) type;
    return NVML_ERROR_NOT_SUPPORTED;
}

API nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned int link, void *pci)
{
    ENTER(device, "nvmlDeviceGetNvLinkRemotePciInfo_v2");
    (void) link, (void) pci;
    return NVML_ERROR_NOT_SUPPORTED;
}

enum { FABRIC_STATE_NOT_SUPPORTED = 0 };

API nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t device, nvmlGpuFabricInfo_v2_t *info)
{
    ENTER(device, "nvmlDeviceGetGpuFabricInfoV");
    if (info->version != STRUCT_VERSION(nvmlGpuFabricInfo_v2_t, 2))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    info->status = NVML_SUCCESS;
    info->state = FABRIC_STATE_NOT_SUPPORTED;
    return NVML_SUCCESS;
}
