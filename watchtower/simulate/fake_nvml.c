/* A stand-in for libnvidia-ml.so.1, driven by a text file, so that the real binding can be exercised without a GPU.
 * It answers only what watchtower's reader asks; it claims nothing about how real hardware behaves.
 *
 * FAKE_NVML_STATE names the file: one key=value per line, re-read when its inode, size or mtime changes. Replace it
 * atomically (write beside it, rename) and no reader sees half a file.
 *
 *   count=8                       GPUs there are now; a handle beyond it answers GPU_IS_LOST (hot unplug)
 *   init=0                        what nvmlInitWithFlags returns (9, 18, 999, ...)
 *   ret.SYMBOL=13  delay.SYMBOL=5000     for calls without a GPU: error to return, milliseconds to block inside C
 *   gN.ret.SYMBOL=15 gN.ret.*=15  gN.delay.SYMBOL=5000 gN.delay.*=5000     the same for GPU N
 *   gN.uuid gN.name gN.pci        text; \xHH writes any byte
 *   gN.power (mW) gN.power_average (mW) gN.limit (mW) gN.limit_min gN.limit_max
 *   gN.util gN.mem_util (%) gN.sm_clock (MHz) gN.temp (C) gN.reasons (bits) gN.ecc gN.recovery
 *   gN.mem_total gN.mem_used (bytes)  gN.energy (mJ; absent: integrated from gN.power)
 *   gN.procs=PID:BYTES,PID:BYTES  gN.fi.ID=VALUE gN.fi_ret.ID=3 gN.fi_type.ID=3   one field's value, status, value type
 *   evK=TYPE:GPU:DATA             an event, told once to each event set that existed before the line appeared
 *
 * A key that is absent means NOT_SUPPORTED.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#define EXPORT __attribute__((visibility("default")))
#define MAX_GPUS 64
#define MAX_KEYS 2048
#define MAX_EVENTS 256

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, TIMEOUT = 10,
       GPU_IS_LOST = 15, ARGUMENT_VERSION_MISMATCH = 25, UNKNOWN = 999 };

typedef int ret_t;
typedef struct { int index; char tag; } *device_t;
typedef struct { char key[80]; char value[1024]; } entry_t;
typedef struct { int told[MAX_EVENTS]; int taken; } event_set_t;
typedef struct { device_t device; unsigned long long type, data; unsigned gi, ci; } event_data_t;
typedef struct { unsigned pid; unsigned long long used; unsigned gi, ci; } process_t;
typedef struct { unsigned field, scope; long long timestamp, latency; unsigned type; ret_t ret;
                 union { double d; uint32_t u32; unsigned long ul; uint64_t u64; int64_t i64; } value; } field_t;
typedef struct { char legacy[16]; unsigned domain, bus, device, device_id, subsystem; char bus_id[32]; } pci_t;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static entry_t *entries;
static int entry_count;
static struct stat seen;
static struct { int index; char tag; } devices[MAX_GPUS];
static double energy_mj[MAX_GPUS], energy_at[MAX_GPUS];

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + now.tv_nsec / 1e9;
}

static void unescape(char *text) {
    char *out = text;
    for (char *in = text; *in; in++, out++) {
        unsigned byte;
        if (in[0] == '\\' && in[1] == 'x' && sscanf(in + 2, "%2x", &byte) == 1) {
            *out = (char)byte;
            in += 3;
        } else {
            *out = *in;
        }
    }
    *out = 0;
}

/* Call with the lock held. */
static void refresh(void) {
    const char *path = getenv("FAKE_NVML_STATE");
    struct stat now;
    if (!path || stat(path, &now)) return;
    if (entries && now.st_ino == seen.st_ino && now.st_size == seen.st_size &&
        now.st_mtim.tv_sec == seen.st_mtim.tv_sec && now.st_mtim.tv_nsec == seen.st_mtim.tv_nsec) return;
    FILE *file = fopen(path, "r");
    if (!file) return;
    if (!entries) entries = calloc(MAX_KEYS, sizeof *entries);
    seen = now;
    entry_count = 0;
    char line[1200]; /* longer than key and value together */
    while (entries && entry_count < MAX_KEYS && fgets(line, sizeof line, file)) {
        char *equals = strchr(line, '=');
        if (!equals || line[0] == '#') continue;
        *equals = 0;
        equals[1 + strcspn(equals + 1, "\r\n")] = 0;
        snprintf(entries[entry_count].key, sizeof entries->key, "%.79s", line);
        snprintf(entries[entry_count].value, sizeof entries->value, "%.1023s", equals + 1);
        unescape(entries[entry_count++].value);
    }
    fclose(file);
}

static const char *text(const char *key) {
    for (int i = 0; i < entry_count; i++)
        if (!strcmp(entries[i].key, key)) return entries[i].value;
    return NULL;
}

static int number(const char *key, unsigned long long *into) {
    const char *value = text(key);
    if (!value) return 0;
    *into = strtoull(value, NULL, 0);
    return 1;
}

static const char *gpu_text(int gpu, const char *name) {
    char key[80];
    snprintf(key, sizeof key, "g%d.%s", gpu, name);
    return text(key);
}

static int gpu_number(int gpu, const char *name, unsigned long long *into) {
    const char *value = gpu_text(gpu, name);
    if (!value) return 0;
    *into = strtoull(value, NULL, 0);
    return 1;
}

static int gpu_count(void) {
    unsigned long long count = 0;
    number("count", &count);
    return count > MAX_GPUS ? MAX_GPUS : (int)count;
}

/* What was ordered for this call; blocks as long as a delay asks, with the lock released. gpu < 0: no GPU. */
static ret_t ordered(int gpu, const char *symbol) {
    char specific[80], any[80];
    unsigned long long delay_ms = 0, code = SUCCESS;
    pthread_mutex_lock(&lock);
    refresh();
    if (gpu < 0) {
        snprintf(specific, sizeof specific, "delay.%s", symbol);
        number(specific, &delay_ms);
    } else {
        snprintf(specific, sizeof specific, "delay.%s", symbol);
        if (!gpu_number(gpu, specific, &delay_ms)) gpu_number(gpu, "delay.*", &delay_ms);
    }
    pthread_mutex_unlock(&lock);
    if (delay_ms) {
        struct timespec pause = {(time_t)(delay_ms / 1000), (long)(delay_ms % 1000) * 1000000L};
        nanosleep(&pause, NULL);
    }
    pthread_mutex_lock(&lock);
    refresh();
    snprintf(specific, sizeof specific, "ret.%s", symbol);
    snprintf(any, sizeof any, "ret.*");
    if (gpu < 0) number(specific, &code);
    else if (!gpu_number(gpu, specific, &code)) gpu_number(gpu, any, &code);
    if (gpu >= gpu_count() && code == SUCCESS) code = GPU_IS_LOST;
    pthread_mutex_unlock(&lock);
    return (ret_t)code;
}

static int index_of(device_t device) { return device ? device->index : MAX_GPUS; }

/* Entry of a call about one GPU: leaves the lock held when it goes on. */
#define ENTER(device, symbol)                      \
    int gpu = index_of(device);                    \
    ret_t first = ordered(gpu, symbol);            \
    if (first) return first;                       \
    pthread_mutex_lock(&lock);
#define LEAVE(code) do { ret_t leaving = (code); pthread_mutex_unlock(&lock); return leaving; } while (0)

static ret_t copy(const char *from, char *into, unsigned length) {
    if (!from) return NOT_SUPPORTED;
    if (strlen(from) + 1 > length) return INSUFFICIENT_SIZE;
    strcpy(into, from);
    return SUCCESS;
}

static ret_t u32(int gpu, const char *name, unsigned *into) {
    unsigned long long value;
    if (!gpu_number(gpu, name, &value)) return NOT_SUPPORTED;
    *into = (unsigned)value;
    return SUCCESS;
}

/* ---- init and system ------------------------------------------------------------------------------------------ */
EXPORT ret_t nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    ret_t first = ordered(-1, "nvmlInitWithFlags");
    if (first) return first;
    unsigned long long code = SUCCESS;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < MAX_GPUS; i++) devices[i].index = i;
    number("init", &code);
    LEAVE((ret_t)code);
}
EXPORT ret_t nvmlShutdown(void) { return SUCCESS; }
EXPORT const char *nvmlErrorString(ret_t code) {
    static char message[64];
    snprintf(message, sizeof message, "Unknown Error %d", code);
    return message;
}
EXPORT ret_t nvmlSystemGetDriverVersion(char *into, unsigned length) {
    ret_t first = ordered(-1, "nvmlSystemGetDriverVersion");
    if (first) return first;
    pthread_mutex_lock(&lock);
    LEAVE(copy(text("driver"), into, length));
}

/* ---- enumerate ------------------------------------------------------------------------------------------------ */
EXPORT ret_t nvmlDeviceGetCount_v2(unsigned *count) {
    ret_t first = ordered(-1, "nvmlDeviceGetCount_v2");
    if (first) return first;
    pthread_mutex_lock(&lock);
    *count = (unsigned)gpu_count();
    LEAVE(SUCCESS);
}
EXPORT ret_t nvmlDeviceGetHandleByIndex_v2(unsigned index, device_t *into) {
    if (index >= MAX_GPUS) return INVALID_ARGUMENT;
    ret_t first = ordered((int)index, "nvmlDeviceGetHandleByIndex_v2");
    if (first) return first == GPU_IS_LOST && (int)index >= gpu_count() ? INVALID_ARGUMENT : first;
    *into = (device_t)&devices[index];
    return SUCCESS;
}
EXPORT ret_t nvmlDeviceGetHandleByUUID(const char *uuid, device_t *into) {
    ret_t first = ordered(-1, "nvmlDeviceGetHandleByUUID");
    if (first) return first;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < gpu_count(); i++) {
        const char *own = gpu_text(i, "uuid");
        if (own && !strcmp(own, uuid)) {
            *into = (device_t)&devices[i];
            LEAVE(SUCCESS);
        }
    }
    LEAVE(NOT_FOUND);
}
EXPORT ret_t nvmlDeviceGetUUID(device_t device, char *into, unsigned length) {
    ENTER(device, "nvmlDeviceGetUUID");
    LEAVE(copy(gpu_text(gpu, "uuid"), into, length));
}
EXPORT ret_t nvmlDeviceGetName(device_t device, char *into, unsigned length) {
    ENTER(device, "nvmlDeviceGetName");
    LEAVE(copy(gpu_text(gpu, "name"), into, length));
}
EXPORT ret_t nvmlDeviceGetPciInfo_v3(device_t device, pci_t *into) {
    ENTER(device, "nvmlDeviceGetPciInfo_v3");
    memset(into, 0, sizeof *into);
    LEAVE(copy(gpu_text(gpu, "pci"), into->bus_id, sizeof into->bus_id));
}

/* ---- power ---------------------------------------------------------------------------------------------------- */
EXPORT ret_t nvmlDeviceGetPowerUsage(device_t device, unsigned *milliwatts) {
    ENTER(device, "nvmlDeviceGetPowerUsage");
    LEAVE(u32(gpu, "power", milliwatts));
}
EXPORT ret_t nvmlDeviceGetEnforcedPowerLimit(device_t device, unsigned *milliwatts) {
    ENTER(device, "nvmlDeviceGetEnforcedPowerLimit");
    LEAVE(u32(gpu, "limit", milliwatts));
}
EXPORT ret_t nvmlDeviceGetPowerManagementLimitConstraints(device_t device, unsigned *low, unsigned *high) {
    ENTER(device, "nvmlDeviceGetPowerManagementLimitConstraints");
    ret_t code = u32(gpu, "limit_min", low);
    LEAVE(code ? code : u32(gpu, "limit_max", high));
}
static ret_t energy(int gpu, unsigned long long *into) {
    if (gpu_number(gpu, "energy", into)) return SUCCESS;
    unsigned long long milliwatts;
    if (!gpu_number(gpu, "power", &milliwatts)) return NOT_SUPPORTED;
    double now = seconds();
    if (energy_at[gpu] > 0) energy_mj[gpu] += (double)milliwatts * (now - energy_at[gpu]);
    energy_at[gpu] = now;
    *into = (unsigned long long)energy_mj[gpu];
    return SUCCESS;
}
EXPORT ret_t nvmlDeviceGetTotalEnergyConsumption(device_t device, unsigned long long *millijoules) {
    ENTER(device, "nvmlDeviceGetTotalEnergyConsumption");
    LEAVE(energy(gpu, millijoules));
}
static ret_t field(int gpu, unsigned id, unsigned long long *value, unsigned *type) {
    char key[32];
    unsigned long long code, kind;
    *type = 1; /* uint32, as the driver says of power */
    snprintf(key, sizeof key, "fi_ret.%u", id);
    if (gpu_number(gpu, key, &code) && code) return (ret_t)code;
    snprintf(key, sizeof key, "fi_type.%u", id);
    if (gpu_number(gpu, key, &kind)) *type = (unsigned)kind;
    snprintf(key, sizeof key, "fi.%u", id);
    if (gpu_number(gpu, key, value)) return SUCCESS;
    if (id == 186) return gpu_number(gpu, "power", value) ? SUCCESS : NOT_SUPPORTED;
    if (id == 185) return gpu_number(gpu, "power_average", value) ? SUCCESS : NOT_SUPPORTED;
    if (id == 230) return gpu_number(gpu, "recovery", value) ? SUCCESS : NOT_SUPPORTED;
    if (id == 83) {
        *type = 3;
        return energy(gpu, value);
    }
    return NOT_SUPPORTED;
}
EXPORT ret_t nvmlDeviceGetFieldValues(device_t device, int count, field_t *values) {
    ENTER(device, "nvmlDeviceGetFieldValues");
    for (int i = 0; i < count; i++) {
        unsigned long long value = 0;
        memset(&values[i].value, 0xAB, sizeof values[i].value); /* what is unused is junk, as on real drivers */
        values[i].timestamp = (long long)(seconds() * 1e6);
        values[i].latency = 0;
        values[i].ret = field(gpu, values[i].field, &value, &values[i].type);
        if (values[i].ret) continue;
        if (values[i].type == 0) values[i].value.d = (double)value;
        else if (values[i].type == 1 || values[i].type == 5) values[i].value.u32 = (uint32_t)value;
        else values[i].value.u64 = value;
    }
    LEAVE(SUCCESS);
}

/* ---- load ----------------------------------------------------------------------------------------------------- */
EXPORT ret_t nvmlDeviceGetUtilizationRates(device_t device, unsigned *rates) {
    ENTER(device, "nvmlDeviceGetUtilizationRates");
    ret_t code = u32(gpu, "util", &rates[0]);
    rates[1] = 0;
    if (!code) u32(gpu, "mem_util", &rates[1]);
    LEAVE(code);
}
EXPORT ret_t nvmlDeviceGetMemoryInfo(device_t device, unsigned long long *memory) {
    ENTER(device, "nvmlDeviceGetMemoryInfo");
    unsigned long long total, used;
    if (!gpu_number(gpu, "mem_total", &total) || !gpu_number(gpu, "mem_used", &used)) LEAVE(NOT_SUPPORTED);
    memory[0] = total;
    memory[1] = total - used;
    memory[2] = used;
    LEAVE(SUCCESS);
}
EXPORT ret_t nvmlDeviceGetMemoryInfo_v2(device_t device, unsigned long long *memory) {
    ENTER(device, "nvmlDeviceGetMemoryInfo_v2");
    unsigned long long total, used;
    if (*(unsigned *)memory != 0x02000028u) LEAVE(ARGUMENT_VERSION_MISMATCH);
    if (!gpu_number(gpu, "mem_total", &total) || !gpu_number(gpu, "mem_used", &used)) LEAVE(NOT_SUPPORTED);
    memory[1] = total;
    memory[2] = 0;
    memory[3] = total - used;
    memory[4] = used;
    LEAVE(SUCCESS);
}
static ret_t processes(device_t device, const char *symbol, const char *name, unsigned *count, process_t *into) {
    ENTER(device, symbol);
    const char *list = gpu_text(gpu, name);
    if (!list) LEAVE(NOT_SUPPORTED);
    unsigned room = *count, wanted = 0;
    for (const char *at = list; *at; at += strcspn(at, ","), at += *at == ',') {
        char *rest;
        unsigned long pid = strtoul(at, &rest, 0);
        unsigned long long used = *rest == ':' ? strtoull(rest + 1, NULL, 0) : ~0ULL;
        if (wanted < room && into) into[wanted] = (process_t){(unsigned)pid, used, ~0u, ~0u};
        wanted++;
    }
    *count = wanted;
    LEAVE(wanted > room || (wanted && !into) ? INSUFFICIENT_SIZE : SUCCESS);
}
EXPORT ret_t nvmlDeviceGetComputeRunningProcesses_v3(device_t device, unsigned *count, process_t *into) {
    return processes(device, "nvmlDeviceGetComputeRunningProcesses_v3", "procs", count, into);
}
EXPORT ret_t nvmlDeviceGetComputeRunningProcesses_v2(device_t device, unsigned *count, process_t *into) {
    return processes(device, "nvmlDeviceGetComputeRunningProcesses_v2", "procs_v2", count, into);
}
EXPORT ret_t nvmlDeviceGetMPSComputeRunningProcesses_v3(device_t device, unsigned *count, process_t *into) {
    return processes(device, "nvmlDeviceGetMPSComputeRunningProcesses_v3", "mps_procs", count, into);
}

/* ---- state ---------------------------------------------------------------------------------------------------- */
EXPORT ret_t nvmlDeviceGetTemperatureV(device_t device, unsigned *request) {
    ENTER(device, "nvmlDeviceGetTemperatureV");
    if (request[0] != 0x0100000cu) LEAVE(ARGUMENT_VERSION_MISMATCH);
    LEAVE(u32(gpu, "temp", &request[2]));
}
EXPORT ret_t nvmlDeviceGetTemperature(device_t device, int sensor, unsigned *celsius) {
    ENTER(device, "nvmlDeviceGetTemperature");
    LEAVE(sensor ? INVALID_ARGUMENT : u32(gpu, "temp", celsius));
}
EXPORT ret_t nvmlDeviceGetClockInfo(device_t device, int which, unsigned *mhz) {
    ENTER(device, "nvmlDeviceGetClockInfo");
    LEAVE(u32(gpu, which == 1 ? "sm_clock" : "mem_clock", mhz));
}
static ret_t reasons(device_t device, const char *symbol, unsigned long long *bits) {
    ENTER(device, symbol);
    LEAVE(gpu_number(gpu, "reasons", bits) ? SUCCESS : NOT_SUPPORTED);
}
EXPORT ret_t nvmlDeviceGetCurrentClocksEventReasons(device_t device, unsigned long long *bits) {
    return reasons(device, "nvmlDeviceGetCurrentClocksEventReasons", bits);
}
EXPORT ret_t nvmlDeviceGetCurrentClocksThrottleReasons(device_t device, unsigned long long *bits) {
    return reasons(device, "nvmlDeviceGetCurrentClocksThrottleReasons", bits);
}
EXPORT ret_t nvmlDeviceGetTotalEccErrors(device_t device, int kind, int counter, unsigned long long *count) {
    ENTER(device, "nvmlDeviceGetTotalEccErrors");
    (void)counter;
    LEAVE(gpu_number(gpu, kind ? "ecc" : "ecc_corrected", count) ? SUCCESS : NOT_SUPPORTED);
}

/* ---- events --------------------------------------------------------------------------------------------------- */
EXPORT ret_t nvmlDeviceGetSupportedEventTypes(device_t device, unsigned long long *types) {
    ENTER(device, "nvmlDeviceGetSupportedEventTypes");
    *types = 0x8 | 0x2;
    LEAVE(SUCCESS);
}
EXPORT ret_t nvmlDeviceRegisterEvents(device_t device, unsigned long long types, event_set_t *set) {
    ENTER(device, "nvmlDeviceRegisterEvents");
    (void)set;
    LEAVE(types & ~0xAULL ? NOT_SUPPORTED : SUCCESS);
}
EXPORT ret_t nvmlEventSetCreate(event_set_t **into) {
    ret_t first = ordered(-1, "nvmlEventSetCreate");
    if (first) return first;
    pthread_mutex_lock(&lock);
    *into = calloc(1, sizeof **into);
    for (int i = 0; *into && i < MAX_EVENTS; i++) {
        char key[16];
        snprintf(key, sizeof key, "ev%d", i);
        (*into)->told[i] = text(key) != NULL;
    }
    LEAVE(*into ? SUCCESS : UNKNOWN);
}
EXPORT ret_t nvmlEventSetWait_v2(event_set_t *set, event_data_t *into, unsigned timeout_ms) {
    ret_t first = ordered(-1, "nvmlEventSetWait_v2");
    if (first) return first;
    double until = seconds() + timeout_ms / 1000.0;
    for (;;) {
        pthread_mutex_lock(&lock);
        refresh();
        for (int i = 0; i < MAX_EVENTS; i++) {
            char key[16];
            unsigned long long type, data;
            int gpu;
            snprintf(key, sizeof key, "ev%d", i);
            const char *value = set->told[i] ? NULL : text(key);
            if (!value || sscanf(value, "%llu:%d:%llu", &type, &gpu, &data) != 3 || gpu < 0 || gpu >= MAX_GPUS) continue;
            set->told[i] = 1;
            *into = (event_data_t){(device_t)&devices[gpu], type, data, ~0u, ~0u};
            LEAVE(SUCCESS);
        }
        pthread_mutex_unlock(&lock);
        if (seconds() >= until) return TIMEOUT;
        struct timespec pause = {0, 5000000L};
        nanosleep(&pause, NULL);
    }
}
EXPORT ret_t nvmlEventSetFree(event_set_t *set) {
    free(set);
    return SUCCESS;
}
