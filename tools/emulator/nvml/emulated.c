/* The stub NVML: what it answers when no file of values is named: the devices of the emulated machine, their memory and the
 * processes that hold it, in the form of such a file.
 *
 *   EMULATOR_NVML_IMPORTS   set: memory counts for each process that has it mapped, too; otherwise for its maker alone */
#define _GNU_SOURCE
#include "machine.h"
#include "stub.h"

#include <dirent.h>

enum { HOLDERS = 32 };
enum { CAPABILITY_MAJOR = 75, CAPABILITY_MINOR = 76 }; /* the driver's CUdevice_attribute */

struct use {
    unsigned long long total;
    unsigned int holders;
    struct { int pid; unsigned long long bytes; } holder[HOLDERS];
};

static void add(struct use *use, int pid, unsigned long long bytes, unsigned long long new_bytes)
{
    unsigned int i = 0;
    use->total += new_bytes;
    while (i < use->holders && use->holder[i].pid != pid)
        i++;
    if (i == HOLDERS)
        return;
    if (i == use->holders)
        use->holder[use->holders++].pid = pid;
    use->holder[i].bytes += bytes;
}

/* Memory that nobody has locked is free, when its process has been closed. */
static bool in_use(DIR *directory, const char *name, int pid)
{
    int fd = openat(dirfd(directory), name, O_RDWR | O_CLOEXEC);
    bool used = fd >= 0 && (flock(fd, LOCK_EX | LOCK_NB) != 0 || machine_closing(fd, pid));
    if (fd >= 0)
        close(fd);
    return used;
}

static void look(const char *state, struct use uses[MACHINE_DEVICES])
{
    char path[MACHINE_PATH + 8];
    snprintf(path, sizeof path, "%s/memory", state);
    DIR *directory = opendir(path);
    for (struct dirent *entry; directory != NULL && (entry = readdir(directory)) != NULL;) {
        int device, pid;
        size_t bytes;
        if (machine_memory(entry->d_name, &device, &bytes, &pid) && device >= 0 && device < MACHINE_DEVICES &&
            in_use(directory, entry->d_name, pid))
            add(&uses[device], pid, bytes, bytes);
    }
    if (directory != NULL)
        closedir(directory);
}

/* What this process has mapped of other processes' memory. */
static void look_at_imports(int pid, const char *state, struct use uses[MACHINE_DEVICES])
{
    char path[MACHINE_PATH + 8], line[MACHINE_PATH + 400];
    snprintf(path, sizeof path, "/proc/%d/maps", pid);
    FILE *maps = fopen(path, "re");
    snprintf(path, sizeof path, "%s/memory/", state);
    while (maps != NULL && fgets(line, sizeof line, maps) != NULL) {
        int device, maker;
        size_t bytes;
        char *name = strstr(line, path);
        line[strcspn(line, "\n")] = '\0';
        bool begins = strstr(line, "s 00000000 ") != NULL;
        if (name != NULL && begins && machine_memory(name + strlen(path), &device, &bytes, &maker) && maker != pid &&
            device >= 0 && device < MACHINE_DEVICES)
            add(&uses[device], pid, bytes, 0);
    }
    if (maps != NULL)
        fclose(maps);
}

static void look_at_all_imports(const char *state, struct use uses[MACHINE_DEVICES])
{
    DIR *processes = opendir("/proc");
    for (struct dirent *entry; processes != NULL && (entry = readdir(processes)) != NULL;)
        if (atoi(entry->d_name) > 0)
            look_at_imports(atoi(entry->d_name), state, uses);
    if (processes != NULL)
        closedir(processes);
}

static void write_device(FILE *file, int device, size_t bytes, const struct use *use)
{
    char uuid[MACHINE_UUID_TEXT];
    machine_uuid_text(device, uuid);
    fprintf(file, "device=%s\nname=%s\ncompute.mode=%d\ncompute.capability=%d.%d\n", uuid, MACHINE_NAME,
            machine_compute_mode(), machine_attribute(CAPABILITY_MAJOR, MACHINE_MAJOR),
            machine_attribute(CAPABILITY_MINOR, MACHINE_MINOR));
    fprintf(file, "memory.total=%zu\nmemory.used=%llu\nprocess.compute=", bytes, use->total);
    for (unsigned int i = 0; i < use->holders; i++)
        fprintf(file, "%s%d:%llu", i > 0 ? "," : "", use->holder[i].pid, use->holder[i].bytes);
    fprintf(file, "\n");
}

FILE *stub_emulated_values(void)
{
    struct use uses[MACHINE_DEVICES] = {0};
    size_t bytes[MACHINE_DEVICES];
    char state[MACHINE_PATH];
    int count = machine_devices(bytes);
    machine_directory(state);
    int lock = machine_lock(state);
    if (lock >= 0) {
        look(state, uses);
        if (getenv("EMULATOR_NVML_IMPORTS"))
            look_at_all_imports(state, uses);
        close(lock);
    }
    FILE *file = tmpfile();
    for (int i = 0; file != NULL && i < count; i++)
        write_device(file, i, bytes[i], &uses[i]);
    if (file != NULL)
        rewind(file);
    return file;
}
