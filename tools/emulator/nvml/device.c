/* The stub NVML: what is asked about one device. */
#include "stub.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CLOCK_SM = 1, TEMPERATURE_GPU = 0 };

/* One number of the file as one output. */
#define NUMBER(function, type, key) \
    API nvmlReturn_t function(nvmlDevice_t device, type *value) \
    { \
        unsigned long long found = 0; \
        ENTER(device, #function); \
        nvmlReturn_t result = stub_number(device, key, &found); \
        *value = (type) found; \
        return result; \
    }

NUMBER(nvmlDeviceGetPowerUsage, unsigned int, "power.usage")
NUMBER(nvmlDeviceGetEnforcedPowerLimit, unsigned int, "power.limit")
NUMBER(nvmlDeviceGetTotalEnergyConsumption, unsigned long long, "energy")
NUMBER(nvmlDeviceGetCurrentClocksEventReasons, unsigned long long, "reasons")
NUMBER(nvmlDeviceGetCurrentClocksThrottleReasons, unsigned long long, "reasons")
NUMBER(nvmlDeviceGetComputeMode, unsigned int, "compute.mode")
NUMBER(nvmlDeviceGetGpuInstanceId, unsigned int, "mig.instance")

API nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length)
{
    char text[STUB_TEXT];
    ENTER(device, "nvmlDeviceGetName");
    if (!stub_text(device->uuid, "name", text))
        return NVML_ERROR_NOT_SUPPORTED;
    return snprintf(name, length, "%s", text) < (int) length ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
}

API nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor)
{
    char text[STUB_TEXT];
    ENTER(device, "nvmlDeviceGetCudaComputeCapability");
    bool known = stub_text(device->uuid, "compute.capability", text);
    return known && sscanf(text, "%d.%d", major, minor) == 2 ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

static nvmlReturn_t memory(nvmlDevice_t device, nvmlMemory_v2_t *all)
{
    nvmlReturn_t result = stub_number(device, "memory.total", &all->total);
    if (result == NVML_SUCCESS)
        result = stub_number(device, "memory.used", &all->used);
    if (stub_number(device, "memory.reserved", &all->reserved) != NVML_SUCCESS)
        all->reserved = 0;
    all->free = all->total - all->used - all->reserved;
    return result;
}

API nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *info)
{
    ENTER(device, "nvmlDeviceGetMemoryInfo_v2");
    if (info->version != STRUCT_VERSION(nvmlMemory_v2_t, 2))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    return memory(device, info);
}

/* The first version counts what is reserved as used. */
API nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *info)
{
    nvmlMemory_v2_t all = {0};
    ENTER(device, "nvmlDeviceGetMemoryInfo");
    nvmlReturn_t result = memory(device, &all);
    *info = (nvmlMemory_t) {all.total, all.free, all.used + all.reserved};
    return result;
}

API nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *rates)
{
    unsigned long long gpu = 0, share = 0;
    ENTER(device, "nvmlDeviceGetUtilizationRates");
    nvmlReturn_t result = stub_number(device, "utilization.gpu", &gpu);
    if (result == NVML_SUCCESS)
        result = stub_number(device, "utilization.memory", &share);
    *rates = (nvmlUtilization_t) {(unsigned int) gpu, (unsigned int) share};
    return result;
}

API nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t device, nvmlTemperature_t *temperature)
{
    unsigned long long degrees = 0;
    ENTER(device, "nvmlDeviceGetTemperatureV");
    if (temperature->version != STRUCT_VERSION(nvmlTemperature_t, 1))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    nvmlReturn_t result = stub_number(device, "temperature", &degrees);
    temperature->temperature = (int) degrees;
    return temperature->sensorType == TEMPERATURE_GPU ? result : NVML_ERROR_INVALID_ARGUMENT;
}

API nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, unsigned int sensor, unsigned int *temperature)
{
    unsigned long long degrees = 0;
    ENTER(device, "nvmlDeviceGetTemperature");
    nvmlReturn_t result = stub_number(device, "temperature", &degrees);
    *temperature = (unsigned int) degrees;
    return sensor == TEMPERATURE_GPU ? result : NVML_ERROR_INVALID_ARGUMENT;
}

static nvmlReturn_t clock_of(nvmlDevice_t device, unsigned int type, const char *key, unsigned int *mhz)
{
    unsigned long long found = 0;
    nvmlReturn_t result = stub_number(device, key, &found);
    *mhz = (unsigned int) found;
    return type == CLOCK_SM ? result : NVML_ERROR_INVALID_ARGUMENT;
}

API nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, unsigned int type, unsigned int *mhz)
{
    ENTER(device, "nvmlDeviceGetClockInfo");
    return clock_of(device, type, "clock.sm", mhz);
}

API nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, unsigned int type, unsigned int *mhz)
{
    ENTER(device, "nvmlDeviceGetMaxClockInfo");
    return clock_of(device, type, "clock.sm.max", mhz);
}

API nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *current, unsigned int *pending)
{
    unsigned long long mode = 0;
    ENTER(device, "nvmlDeviceGetMigMode");
    nvmlReturn_t result = stub_number(device, "mig.mode", &mode);
    *current = *pending = (unsigned int) mode;
    return result;
}

/* The next "PID:BYTES[:INSTANCE]" of a list; false at its end. */
static bool next_process(char **list, nvmlProcessInfo_t *process)
{
    char *entry = strsep(list, ",");
    if (entry == NULL || *entry == '\0')
        return false;
    char *pid = strsep(&entry, ":"), *bytes = strsep(&entry, ":"), *instance = strsep(&entry, ":");
    *process = (nvmlProcessInfo_t) {
        .pid = (unsigned int) strtoul(pid, NULL, 0),
        .usedGpuMemory = bytes == NULL || *bytes == '?' ? ~0ULL : strtoull(bytes, NULL, 0),
        .gpuInstanceId = instance == NULL ? ~0U : (unsigned int) strtoul(instance, NULL, 0),
        .computeInstanceId = ~0U,
    };
    return true;
}

/* Entries of `size` bytes, which are the beginning of a nvmlProcessInfo_t. */
static nvmlReturn_t processes(nvmlDevice_t device, const char *key, unsigned int *count, void *infos, size_t size)
{
    char text[STUB_TEXT] = "", *list = text;
    unsigned int room = infos == NULL ? 0 : *count, found = 0;
    nvmlProcessInfo_t process;
    stub_text(device->uuid, key, text);
    while (next_process(&list, &process)) {
        if (found < room)
            memcpy((char *) infos + found * size, &process, size);
        found++;
    }
    *count = found;
    return found <= room ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
}

#define PROCESSES(function, type, key) \
    API nvmlReturn_t function(nvmlDevice_t device, unsigned int *count, type *infos) \
    { \
        ENTER(device, #function); \
        return processes(device, key, count, infos, sizeof *infos); \
    }

PROCESSES(nvmlDeviceGetComputeRunningProcesses, nvmlProcessInfo_v1_t, "process.compute")
PROCESSES(nvmlDeviceGetComputeRunningProcesses_v3, nvmlProcessInfo_t, "process.compute")
PROCESSES(nvmlDeviceGetComputeRunningProcesses_v2, nvmlProcessInfo_t, "process.compute")
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v3, nvmlProcessInfo_t, "process.graphics")
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v2, nvmlProcessInfo_t, "process.graphics")
PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v3, nvmlProcessInfo_t, "process.mps")
PROCESSES(nvmlDeviceGetMPSComputeRunningProcesses_v2, nvmlProcessInfo_t, "process.mps")

/* One sample for each process, taken at `clock_ms`. */
API nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device, nvmlProcessUtilizationSample_t *samples,
                                                 unsigned int *count, unsigned long long since)
{
    ENTER(device, "nvmlDeviceGetProcessUtilization");
    char text[STUB_TEXT] = "", *list = text;
    unsigned long long clock_ms = 0;
    unsigned int room = samples == NULL ? 0 : *count, found = 0;
    nvmlProcessInfo_t process;
    if (!stub_text(device->uuid, "process.busy", text))
        return NVML_ERROR_NOT_SUPPORTED;
    stub_number(device, "clock_ms", &clock_ms);
    while (since < clock_ms * 1000 && next_process(&list, &process)) {
        if (found < room)
            samples[found] = (nvmlProcessUtilizationSample_t) {
                .pid = process.pid, .timeStamp = clock_ms * 1000, .smUtil = (unsigned int) process.usedGpuMemory};
        found++;
    }
    *count = found;
    if (found == 0)
        return NVML_ERROR_NOT_FOUND;
    return found <= room ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
}
