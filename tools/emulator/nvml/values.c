/* The stub NVML reads everything that it answers from a file, anew at each call, so that tests can change it:

     EMULATOR_NVML   the file; without it the answers are those of the emulated machine (machine.h)

     EMULATOR_DRIVER   version of the driver (default 580.65.06)

   Lines are KEY=VALUE; `#` begins a comment.  `device=UUID` begins the values of a device; their order is that of the
   indices.  Numbers are in NVML's units.  A value that is missing makes its function answer "not supported".

     memory.total, memory.used, memory.reserved (0)      bytes; what is free follows from them
     process.compute, process.graphics, process.mps      PID:BYTES[:GPU INSTANCE],...  with ? for bytes that are not known
     utilization.gpu, utilization.memory                 percent
     process.busy                                        PID:PERCENT,...  of the multiprocessors, newest sample
     power.usage, power.limit (mW)   energy (mJ)   temperature (degrees C)   clock.sm, clock.sm.max (MHz)   reasons (bits)
     name   compute.capability (8.0)   compute.mode (NVML's number)
     mig.mode (0 or 1)   mig.parent (UUID) and mig.instance: this device is an instance
     gpm.supported (0)   gpm.METRIC: value of that metric between any two samples   clock_ms: time of GPM samples

   For a device, or before the first one for all:

     fail.FUNCTION=N     that function answers N (13: as if the driver had no such function)
     wait.FUNCTION=PATH  that function waits until somebody has opened the fifo at PATH for writing, and closed it again */
#include "stub.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool value_of(char *line, const char *key, char **value)
{
    line[strcspn(line, "#\r\n")] = '\0';
    size_t length = strlen(key);
    if (strncmp(line, key, length) != 0 || line[length] != '=')
        return false;
    *value = line + length + 1;
    return true;
}

static FILE *values(void)
{
    const char *path = getenv("EMULATOR_NVML");
    return path == NULL ? stub_emulated_values() : fopen(path, "re");
}

bool stub_text(const char *uuid, const char *key, char text[STUB_TEXT])
{
    FILE *file = values();
    if (file == NULL)
        return false;
    char line[STUB_TEXT], *value;
    bool here = uuid == NULL, found = false;
    while (!found && fgets(line, sizeof line, file) != NULL) {
        if (value_of(line, "device", &value))
            here = uuid != NULL && strcmp(value, uuid) == 0;
        else if (here && value_of(line, key, &value))
            found = true;
    }
    fclose(file);
    if (found)
        snprintf(text, STUB_TEXT, "%s", value);
    return found;
}

nvmlReturn_t stub_number(nvmlDevice_t device, const char *key, unsigned long long *value)
{
    char text[STUB_TEXT];
    if (!stub_text(device->uuid, key, text))
        return NVML_ERROR_NOT_SUPPORTED;
    *value = strtoull(text, NULL, 0);
    return NVML_SUCCESS;
}

bool stub_section(unsigned int index, char uuid[STUB_TEXT])
{
    FILE *file = values();
    if (file == NULL)
        return false;
    char line[STUB_TEXT], *value = NULL;
    unsigned int seen = 0;
    bool found = false;
    while (!found && fgets(line, sizeof line, file) != NULL)
        found = value_of(line, "device", &value) && seen++ == index;
    fclose(file);
    if (found)
        snprintf(uuid, STUB_TEXT, "%s", value);
    return found;
}

static bool demanded(nvmlDevice_t device, const char *what, const char *function, char text[STUB_TEXT])
{
    char key[STUB_TEXT];
    snprintf(key, sizeof key, "%s.%s", what, function);
    return (device != NULL && stub_text(device->uuid, key, text)) || stub_text(NULL, key, text);
}

nvmlReturn_t stub_enter(nvmlDevice_t device, const char *function)
{
    char text[STUB_TEXT];
    if (demanded(device, "wait", function, text)) {
        int fifo = open(text, O_RDONLY | O_CLOEXEC);
        char byte;
        while (fifo >= 0 && read(fifo, &byte, 1) > 0)
            ;
        close(fifo);
    }
    return demanded(device, "fail", function, text) ? (nvmlReturn_t) strtoul(text, NULL, 0) : NVML_SUCCESS;
}
