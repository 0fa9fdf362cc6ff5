/* The stub NVML: what its files share.  The ABI is that of NVIDIA's libnvidia-ml as nvidia-ml-py declares it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#define API __attribute__((visibility("default")))

typedef unsigned int nvmlReturn_t;

enum {
    NVML_SUCCESS = 0,
    NVML_ERROR_UNINITIALIZED = 1,
    NVML_ERROR_INVALID_ARGUMENT = 2,
    NVML_ERROR_NOT_SUPPORTED = 3,
    NVML_ERROR_NOT_FOUND = 6,
    NVML_ERROR_INSUFFICIENT_SIZE = 7,
    NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25,
};

enum { STUB_TEXT = 1024, STUB_UUID = 96 };

typedef struct nvmlDevice_st {
    char uuid[STUB_UUID];
} *nvmlDevice_t;

typedef struct {
    unsigned long long total, free, used;
} nvmlMemory_t;

typedef struct {
    unsigned int version;
    unsigned long long total, reserved, free, used;
} nvmlMemory_v2_t;

typedef struct {
    unsigned int pid;
    unsigned long long usedGpuMemory;
} nvmlProcessInfo_v1_t;

typedef struct {
    unsigned int pid;
    unsigned long long usedGpuMemory;
    unsigned int gpuInstanceId, computeInstanceId;
} nvmlProcessInfo_t;

typedef struct {
    unsigned int gpu, memory;
} nvmlUtilization_t;

typedef struct {
    unsigned int pid;
    unsigned long long timeStamp;
    unsigned int smUtil, memUtil, encUtil, decUtil;
} nvmlProcessUtilizationSample_t;

typedef struct {
    unsigned int version, sensorType;
    int temperature;
} nvmlTemperature_t;

typedef struct {
    unsigned int version;
    unsigned char clusterUuid[16];
    nvmlReturn_t status;
    unsigned int cliqueId, state, healthMask;
} nvmlGpuFabricInfo_v2_t;

typedef struct nvmlGpmSample_st *nvmlGpmSample_t;

typedef struct {
    char *shortName, *longName, *unit;
} nvmlGpmMetricInfo_t;

typedef struct {
    unsigned int metricId;
    nvmlReturn_t nvmlReturn;
    double value;
    nvmlGpmMetricInfo_t metricInfo;
} nvmlGpmMetric_t;

enum { NVML_GPM_METRIC_MAX = 477 };

typedef struct {
    unsigned int version, numMetrics;
    nvmlGpmSample_t sample1, sample2;
    nvmlGpmMetric_t metrics[NVML_GPM_METRIC_MAX];
} nvmlGpmMetricsGet_t;

typedef struct {
    unsigned int version, isSupportedDevice;
} nvmlGpmSupport_t;

/* The version word that NVML wants in structures: their size, and a number in the highest byte. */
#define STRUCT_VERSION(type, number) ((unsigned int) (sizeof(type) | (unsigned int) (number) << 24))

/* A value of the file.  ``uuid`` NULL: from before the first device.  False where there is none. */
bool stub_text(const char *uuid, const char *key, char text[STUB_TEXT]);

/* NVML_ERROR_NOT_SUPPORTED where there is no such value. */
nvmlReturn_t stub_number(nvmlDevice_t device, const char *key, unsigned long long *value);

/* The UUID of the device section with this number; false where there are fewer. */
bool stub_section(unsigned int index, char uuid[STUB_TEXT]);

/* The GPU with that number; NVML_ERROR_INVALID_ARGUMENT beyond the last. */
nvmlReturn_t stub_device_numbered(unsigned int index, nvmlDevice_t *device);

/* Values of the emulated machine, like a file of values; NULL: there is no room for them. */
FILE *stub_emulated_values(void);

/* How often the library has been initialized without being shut down; tests call it too. */
API int stub_users(void);

/* Waiting and errors on demand.  ``device`` NULL: none is concerned. */
nvmlReturn_t stub_enter(nvmlDevice_t device, const char *function);

/* At the beginning of every function. */
#define ENTER(device, function) \
    do { \
        nvmlReturn_t entered = stub_users() > 0 ? stub_enter(device, function) : NVML_ERROR_UNINITIALIZED; \
        if (entered != NVML_SUCCESS) \
            return entered; \
    } while (0)
