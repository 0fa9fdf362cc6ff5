/* The stub NVML: initialization, handles, texts, and the layout of its structures for a test. */
#include "machine.h"
#include "stub.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEVICES = 64 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct nvmlDevice_st devices[DEVICES];
static int users;

static nvmlReturn_t begin(const char *function)
{
    nvmlReturn_t entered = stub_enter(NULL, function);
    if (entered == NVML_SUCCESS)
        __atomic_add_fetch(&users, 1, __ATOMIC_SEQ_CST);
    return entered;
}

API nvmlReturn_t nvmlInit(void)
{
    return begin("nvmlInit");
}

API nvmlReturn_t nvmlInit_v2(void)
{
    return begin("nvmlInit_v2");
}

API nvmlReturn_t nvmlInitWithFlags(unsigned int flags)
{
    (void) flags;
    return begin("nvmlInitWithFlags");
}

API nvmlReturn_t nvmlShutdown(void)
{
    ENTER(NULL, "nvmlShutdown");
    __atomic_sub_fetch(&users, 1, __ATOMIC_SEQ_CST);
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    ENTER(NULL, "nvmlSystemGetCudaDriverVersion_v2");
    *version = machine_version();
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length)
{
    const char *named = getenv("EMULATOR_DRIVER");
    ENTER(NULL, "nvmlSystemGetDriverVersion");
    snprintf(version, length, "%s", named != NULL ? named : "580.65.06");
    return NVML_SUCCESS;
}

API int stub_users(void)
{
    return users;
}

API const char *nvmlErrorString(nvmlReturn_t result)
{
    static _Thread_local char text[64];
    snprintf(text, sizeof text, "stub error %u", result);
    return text;
}

/* One handle for each UUID, for ever, as in the real library. */
static nvmlReturn_t handle_of(const char *uuid, nvmlDevice_t *device)
{
    nvmlReturn_t result = NVML_ERROR_INSUFFICIENT_SIZE;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < DEVICES && result != NVML_SUCCESS; i++) {
        if (devices[i].uuid[0] == '\0')
            snprintf(devices[i].uuid, sizeof devices[i].uuid, "%s", uuid);
        if (strcmp(devices[i].uuid, uuid) == 0) {
            *device = &devices[i];
            result = NVML_SUCCESS;
        }
    }
    pthread_mutex_unlock(&lock);
    return result;
}

API nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
    char known[STUB_TEXT];
    ENTER(NULL, "nvmlDeviceGetHandleByUUID");
    for (unsigned int i = 0; stub_section(i, known); i++)
        if (strcmp(known, uuid) == 0)
            return handle_of(uuid, device);
    return NVML_ERROR_NOT_FOUND;
}

/* The device with that number among the GPUs (parent NULL) or among the instances of one; false beyond the last. */
static bool numbered(const char *parent, unsigned int index, char uuid[STUB_TEXT])
{
    char of[STUB_TEXT];
    for (unsigned int i = 0; stub_section(i, uuid); i++) {
        bool instance = stub_text(uuid, "mig.parent", of);
        if (instance == (parent != NULL) && (parent == NULL || strcmp(of, parent) == 0) && index-- == 0)
            return true;
    }
    return false;
}

API nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count)
{
    char uuid[STUB_TEXT];
    ENTER(NULL, "nvmlDeviceGetCount_v2");
    for (*count = 0; numbered(NULL, *count, uuid); ++*count)
        ;
    return NVML_SUCCESS;
}

enum { MOST_INSTANCES = 7 };

API nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *count)
{
    ENTER(device, "nvmlDeviceGetMaxMigDeviceCount");
    *count = MOST_INSTANCES;
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index, nvmlDevice_t *instance)
{
    char uuid[STUB_TEXT];
    ENTER(device, "nvmlDeviceGetMigDeviceHandleByIndex");
    return numbered(device->uuid, index, uuid) ? handle_of(uuid, instance) : NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t stub_device_numbered(unsigned int index, nvmlDevice_t *device)
{
    char uuid[STUB_TEXT];
    return numbered(NULL, index, uuid) ? handle_of(uuid, device) : NVML_ERROR_INVALID_ARGUMENT;
}

API nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device)
{
    ENTER(NULL, "nvmlDeviceGetHandleByIndex_v2");
    return stub_device_numbered(index, device);
}

API nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length)
{
    ENTER(device, "nvmlDeviceGetUUID");
    int needed = snprintf(uuid, length, "%s", device->uuid);
    return needed < (int) length ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
}

/* Among the GPUs; an instance has its number among those of its GPU, which nobody has asked for yet. */
API nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index)
{
    char uuid[STUB_TEXT];
    ENTER(device, "nvmlDeviceGetIndex");
    for (*index = 0; numbered(NULL, *index, uuid); ++*index)
        if (strcmp(uuid, device->uuid) == 0)
            return NVML_SUCCESS;
    return NVML_ERROR_NOT_SUPPORTED;
}

API nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned int *is)
{
    char parent[STUB_TEXT];
    ENTER(device, "nvmlDeviceIsMigDeviceHandle");
    *is = stub_text(device->uuid, "mig.parent", parent);
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t device, nvmlDevice_t *parent)
{
    char uuid[STUB_TEXT];
    ENTER(device, "nvmlDeviceGetDeviceHandleFromMigDeviceHandle");
    return stub_text(device->uuid, "mig.parent", uuid) ? handle_of(uuid, parent) : NVML_ERROR_INVALID_ARGUMENT;
}

/* For a test that compares with nvidia-ml-py: where a field lies, and how large it is. */
#define FIELD(type, field) {#type "." #field, offsetof(type, field), sizeof(((type *) 0)->field)}
#define WHOLE(type) {#type, 0, sizeof(type)}

static const struct {
    const char *name;
    size_t offset, size;
} layout[] = {
    WHOLE(nvmlMemory_t), FIELD(nvmlMemory_t, total), FIELD(nvmlMemory_t, free), FIELD(nvmlMemory_t, used),
    WHOLE(nvmlMemory_v2_t), FIELD(nvmlMemory_v2_t, version), FIELD(nvmlMemory_v2_t, total),
    FIELD(nvmlMemory_v2_t, reserved), FIELD(nvmlMemory_v2_t, free), FIELD(nvmlMemory_v2_t, used),
    WHOLE(nvmlProcessInfo_v1_t), FIELD(nvmlProcessInfo_v1_t, pid), FIELD(nvmlProcessInfo_v1_t, usedGpuMemory),
    WHOLE(nvmlProcessInfo_t), FIELD(nvmlProcessInfo_t, pid), FIELD(nvmlProcessInfo_t, usedGpuMemory),
    FIELD(nvmlProcessInfo_t, gpuInstanceId), FIELD(nvmlProcessInfo_t, computeInstanceId),
    WHOLE(nvmlUtilization_t), FIELD(nvmlUtilization_t, gpu), FIELD(nvmlUtilization_t, memory),
    WHOLE(nvmlProcessUtilizationSample_t), FIELD(nvmlProcessUtilizationSample_t, pid),
    FIELD(nvmlProcessUtilizationSample_t, timeStamp), FIELD(nvmlProcessUtilizationSample_t, smUtil),
    FIELD(nvmlProcessUtilizationSample_t, memUtil), FIELD(nvmlProcessUtilizationSample_t, encUtil),
    FIELD(nvmlProcessUtilizationSample_t, decUtil),
    WHOLE(nvmlTemperature_t), FIELD(nvmlTemperature_t, version), FIELD(nvmlTemperature_t, sensorType),
    FIELD(nvmlTemperature_t, temperature),
    WHOLE(nvmlGpmMetricInfo_t), FIELD(nvmlGpmMetricInfo_t, shortName), FIELD(nvmlGpmMetricInfo_t, longName),
    FIELD(nvmlGpmMetricInfo_t, unit),
    WHOLE(nvmlGpmMetric_t), FIELD(nvmlGpmMetric_t, metricId), FIELD(nvmlGpmMetric_t, nvmlReturn),
    FIELD(nvmlGpmMetric_t, value), FIELD(nvmlGpmMetric_t, metricInfo),
    WHOLE(nvmlGpmMetricsGet_t), FIELD(nvmlGpmMetricsGet_t, version), FIELD(nvmlGpmMetricsGet_t, numMetrics),
    FIELD(nvmlGpmMetricsGet_t, sample1), FIELD(nvmlGpmMetricsGet_t, sample2), FIELD(nvmlGpmMetricsGet_t, metrics),
    WHOLE(nvmlGpmSupport_t), FIELD(nvmlGpmSupport_t, version), FIELD(nvmlGpmSupport_t, isSupportedDevice),
};

API int stub_layout(const char *name, size_t *offset, size_t *size)
{
    for (size_t i = 0; i < sizeof layout / sizeof *layout; i++)
        if (strcmp(layout[i].name, name) == 0) {
            *offset = layout[i].offset;
            *size = layout[i].size;
            return 1;
        }
    return 0;
}
