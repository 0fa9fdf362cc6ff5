/* The stub NVML: GPM, the counters of the multiprocessors, as differences between two samples. */
#include "stub.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SHORTEST_MS = 100, WHOLE_GPU = -1 };

struct nvmlGpmSample_st {
    char uuid[STUB_UUID];
    long instance;
    unsigned long long time_ms; /* 0: nothing has been sampled */
};

static int samples;

/* For tests: how many samples are allocated. */
API int stub_gpm_samples(void)
{
    return samples;
}

API nvmlReturn_t nvmlGpmSampleAlloc(nvmlGpmSample_t *sample)
{
    ENTER(NULL, "nvmlGpmSampleAlloc");
    *sample = calloc(1, sizeof **sample);
    __atomic_add_fetch(&samples, 1, __ATOMIC_SEQ_CST);
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlGpmSampleFree(nvmlGpmSample_t sample)
{
    ENTER(NULL, "nvmlGpmSampleFree");
    free(sample);
    __atomic_sub_fetch(&samples, 1, __ATOMIC_SEQ_CST);
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlGpmQueryDeviceSupport(nvmlDevice_t device, nvmlGpmSupport_t *support)
{
    unsigned long long supported = 0;
    ENTER(device, "nvmlGpmQueryDeviceSupport");
    stub_number(device, "gpm.supported", &supported);
    support->isSupportedDevice = (unsigned int) supported;
    return NVML_SUCCESS;
}

static unsigned long long now_ms(nvmlDevice_t device)
{
    unsigned long long set;
    if (stub_number(device, "clock_ms", &set) == NVML_SUCCESS)
        return set;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (unsigned long long) now.tv_sec * 1000 + (unsigned long long) now.tv_nsec / 1000000;
}

static nvmlReturn_t take(nvmlDevice_t device, long instance, nvmlGpmSample_t sample)
{
    snprintf(sample->uuid, sizeof sample->uuid, "%s", device->uuid);
    sample->instance = instance;
    sample->time_ms = now_ms(device);
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlGpmSampleGet(nvmlDevice_t device, nvmlGpmSample_t sample)
{
    ENTER(device, "nvmlGpmSampleGet");
    return take(device, WHOLE_GPU, sample);
}

API nvmlReturn_t nvmlGpmMigSampleGet(nvmlDevice_t device, unsigned int instance, nvmlGpmSample_t sample)
{
    ENTER(device, "nvmlGpmMigSampleGet");
    return take(device, (long) instance, sample);
}

/* "gpm.ID" for a whole GPU, "gpm.ID.INSTANCE" for an instance of it. */
static void measure(const struct nvmlGpmSample_st *sample, nvmlGpmMetric_t *metric)
{
    char key[64], text[STUB_TEXT];
    if (sample->instance == WHOLE_GPU)
        snprintf(key, sizeof key, "gpm.%u", metric->metricId);
    else
        snprintf(key, sizeof key, "gpm.%u.%ld", metric->metricId, sample->instance);
    metric->nvmlReturn = stub_text(sample->uuid, key, text) ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
    metric->value = metric->nvmlReturn == NVML_SUCCESS ? strtod(text, NULL) : 0;
}

/* Stricter than the documentation, which only asks for 100 ms: anything less is an error here. */
API nvmlReturn_t nvmlGpmMetricsGet(nvmlGpmMetricsGet_t *get)
{
    ENTER(NULL, "nvmlGpmMetricsGet");
    if (get->version != 1)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    nvmlGpmSample_t first = get->sample1, second = get->sample2;
    if (first->time_ms == 0 || strcmp(first->uuid, second->uuid) != 0 || first->instance != second->instance)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (second->time_ms < first->time_ms + SHORTEST_MS)
        return NVML_ERROR_INVALID_ARGUMENT;
    for (unsigned int i = 0; i < get->numMetrics; i++)
        measure(second, &get->metrics[i]);
    return NVML_SUCCESS;
}
