/* A stand-in for NVIDIA's management library.
 *
 * Every answer comes from a state file, named by FAKE_NVML_STATE, which tests map and change while programs look at it
 * (tests/telemetry/nvml_state.py has the same structures).  It needs no header: the few structures of NVML's public
 * interface that it fills are declared here.  What it does not have, a caller sees as "function not found".
 *
 * As with a real driver, memory in use is a base plus what the processes hold, and a process that has ended holds
 * nothing.  Build: gcc -O2 -shared -fPIC -o libnvidia-ml.so.1 fake_nvml.c
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define API __attribute__((visibility("default")))

/* ---- NVML's codes and structures */

typedef int Return;
enum {
    SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7,
    DRIVER_NOT_LOADED = 9, TIMEOUT = 10, GPU_IS_LOST = 15, UNKNOWN = 999,
};
enum { EVENT_XID = 8, NO_INSTANCE = 0xffffffffu };

typedef void *Device;
typedef void *EventSet;
typedef unsigned long long u64;

typedef struct { u64 total, free, used; } Memory;
typedef struct { unsigned version; u64 total, reserved, free, used; } MemoryV2;
typedef struct { unsigned gpu, memory; } Utilization;
typedef struct { unsigned version, sensor; int temperature; } Temperature;
typedef struct { unsigned pid; u64 memory; unsigned gpu_instance, compute_instance; } ProcessInfo;
typedef struct { Device device; u64 type, data; unsigned gpu_instance, compute_instance; } EventData;
typedef struct {
    char bus_id_legacy[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
} PciInfo;

/* ---- the state file */

#define MAGIC 0x4c4d5646u
#define CARDS 16
#define PROCESSES 64
#define EVENTS 64

typedef struct { unsigned pid, ghost; u64 memory; } Process; /* a ghost is listed without being looked for */

typedef struct {
    char name[64], uuid[64];
    u64 memory_total, memory_reserved, memory_base;
    unsigned utilization, power_mw, temperature, lost, mig;
    unsigned fail_memory, fail_processes, fail_readings; /* codes that these calls answer instead */
    Process processes[PROCESSES];                        /* pid 0 = a free place */
} Card;

typedef struct { unsigned card, code; } Event;

typedef struct {
    unsigned magic, cards, loaded, init_code;
    volatile u64 event_head;
    Event events[EVENTS];
    Card card[CARDS];
} State;

static State *state;
static unsigned references;
static u64 event_tail;

static Card *card_of(Device device) {
    long index = (long)device - 1;
    return state && index >= 0 && index < (long)state->cards ? &state->card[index] : NULL;
}

/* Every call about a card begins like this. */
#define CARD(device)                             \
    Card *card = card_of(device);                \
    if (!state) return UNINITIALIZED;            \
    if (!card) return INVALID_ARGUMENT;          \
    if (card->lost) return GPU_IS_LOST;

#define FAILS(code) do { if (code) return (Return)(code); } while (0)

/* ---- opening and closing, counted as NVML counts them */

API Return nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    if (!state) {
        const char *path = getenv("FAKE_NVML_STATE");
        int file = path ? open(path, O_RDONLY) : -1;
        if (file < 0) return DRIVER_NOT_LOADED;
        State *mapped = mmap(NULL, sizeof(State), PROT_READ, MAP_SHARED, file, 0);
        close(file);
        if (mapped == MAP_FAILED) return UNKNOWN;
        unsigned code = mapped->magic != MAGIC ? UNKNOWN : !mapped->loaded ? DRIVER_NOT_LOADED : mapped->init_code;
        if (code) {
            munmap(mapped, sizeof(State));
            return (Return)code;
        }
        state = mapped;
    }
    references++;
    return SUCCESS;
}
API Return nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
API Return nvmlInit(void) { return nvmlInitWithFlags(0); }

API Return nvmlShutdown(void) {
    if (!state) return UNINITIALIZED;
    if (--references == 0) {
        munmap(state, sizeof(State));
        state = NULL;
    }
    return SUCCESS;
}

API const char *nvmlErrorString(Return code) {
    static char text[32];
    snprintf(text, sizeof text, "Error %d", code);
    return text;
}

/* ---- the machine */

API Return nvmlSystemGetDriverVersion(char *text, unsigned size) {
    if (!state) return UNINITIALIZED;
    snprintf(text, size, "580.00.fake");
    return SUCCESS;
}
API Return nvmlSystemGetNVMLVersion(char *text, unsigned size) {
    if (!state) return UNINITIALIZED;
    snprintf(text, size, "13.580.00");
    return SUCCESS;
}
API Return nvmlSystemGetCudaDriverVersion_v2(int *version) {
    *version = 13000;
    return state ? SUCCESS : UNINITIALIZED;
}
API Return nvmlDeviceGetCount_v2(unsigned *count) {
    if (!state) return UNINITIALIZED;
    *count = state->cards;
    return SUCCESS;
}

/* ---- handles: index + 1, so that no handle is NULL */

API Return nvmlDeviceGetHandleByIndex_v2(unsigned index, Device *device) {
    if (!state) return UNINITIALIZED;
    if (index >= state->cards) return INVALID_ARGUMENT;
    if (state->card[index].lost) return GPU_IS_LOST;
    *device = (Device)(long)(index + 1);
    return SUCCESS;
}
API Return nvmlDeviceGetHandleByUUID(const char *uuid, Device *device) {
    if (!state) return UNINITIALIZED;
    for (unsigned i = 0; i < state->cards; i++)
        if (!strcmp(uuid, state->card[i].uuid)) return nvmlDeviceGetHandleByIndex_v2(i, device);
    return NOT_FOUND;
}

/* ---- what a card is */

API Return nvmlDeviceGetIndex(Device device, unsigned *index) {
    CARD(device)
    *index = (unsigned)(card - state->card);
    return SUCCESS;
}
API Return nvmlDeviceGetName(Device device, char *text, unsigned size) {
    CARD(device)
    snprintf(text, size, "%s", card->name);
    return SUCCESS;
}
API Return nvmlDeviceGetUUID(Device device, char *text, unsigned size) {
    CARD(device)
    snprintf(text, size, "%s", card->uuid);
    return SUCCESS;
}
API Return nvmlDeviceGetPciInfo_v3(Device device, PciInfo *info) {
    CARD(device)
    memset(info, 0, sizeof *info);
    info->bus = (unsigned)(card - state->card) + 1;
    snprintf(info->bus_id, sizeof info->bus_id, "00000000:%02X:00.0", info->bus);
    snprintf(info->bus_id_legacy, sizeof info->bus_id_legacy, "0000:%02X:00.0", info->bus);
    return SUCCESS;
}
API Return nvmlDeviceGetMigMode(Device device, unsigned *current, unsigned *pending) {
    CARD(device)
    *current = *pending = card->mig;
    return SUCCESS;
}

/* ---- processes and memory */

/* Has it a life of its own?  A zombie has not: the driver frees at exit, before the parent has looked. */
static int lives(const Process *process) {
    char path[32], line[512];
    if (process->ghost) return 1;
    snprintf(path, sizeof path, "/proc/%u/stat", process->pid);
    int file = open(path, O_RDONLY);
    if (file < 0) return 0;
    ssize_t size = read(file, line, sizeof line - 1);
    close(file);
    if (size <= 0) return 0;
    line[size] = 0;
    const char *after = strrchr(line, ')');
    return after && after[1] && after[2] != 'Z' && after[2] != 'X';
}

static u64 used_by_processes(const Card *card) {
    u64 sum = 0;
    for (int i = 0; i < PROCESSES; i++)
        if (card->processes[i].pid && lives(&card->processes[i])) sum += card->processes[i].memory;
    return sum;
}

API Return nvmlDeviceGetMemoryInfo(Device device, Memory *memory) {
    CARD(device)
    FAILS(card->fail_memory);
    memory->total = card->memory_total;
    memory->used = card->memory_base + card->memory_reserved + used_by_processes(card);
    memory->free = memory->total - memory->used;
    return SUCCESS;
}
API Return nvmlDeviceGetMemoryInfo_v2(Device device, MemoryV2 *memory) {
    CARD(device)
    FAILS(card->fail_memory);
    memory->total = card->memory_total;
    memory->reserved = card->memory_reserved;
    memory->used = card->memory_base + used_by_processes(card);
    memory->free = memory->total - memory->reserved - memory->used;
    return SUCCESS;
}

API Return nvmlDeviceGetComputeRunningProcesses_v3(Device device, unsigned *count, ProcessInfo *list) {
    CARD(device)
    FAILS(card->fail_processes);
    unsigned room = list ? *count : 0, found = 0;
    for (int i = 0; i < PROCESSES; i++) {
        const Process *process = &card->processes[i];
        if (!process->pid || !lives(process)) continue;
        if (found < room) list[found] = (ProcessInfo){process->pid, process->memory, NO_INSTANCE, NO_INSTANCE};
        found++;
    }
    *count = found;
    return found > room ? INSUFFICIENT_SIZE : SUCCESS;
}
API Return nvmlDeviceGetGraphicsRunningProcesses_v3(Device device, unsigned *count, ProcessInfo *list) {
    CARD(device)
    (void)list;
    *count = 0;
    return SUCCESS;
}

/* ---- other readings */

API Return nvmlDeviceGetUtilizationRates(Device device, Utilization *rates) {
    CARD(device)
    FAILS(card->fail_readings);
    rates->gpu = card->utilization;
    rates->memory = card->utilization / 2;
    return SUCCESS;
}
API Return nvmlDeviceGetTemperature(Device device, unsigned sensor, unsigned *celsius) {
    CARD(device)
    (void)sensor;
    FAILS(card->fail_readings);
    *celsius = card->temperature;
    return SUCCESS;
}
API Return nvmlDeviceGetTemperatureV(Device device, Temperature *temperature) {
    CARD(device)
    FAILS(card->fail_readings);
    temperature->temperature = (int)card->temperature;
    return SUCCESS;
}
API Return nvmlDeviceGetPowerUsage(Device device, unsigned *milliwatts) {
    CARD(device)
    FAILS(card->fail_readings);
    *milliwatts = card->power_mw;
    return SUCCESS;
}

/* ---- events: one queue for the process, of what came after its last event set was made */

API Return nvmlDeviceGetSupportedEventTypes(Device device, u64 *types) {
    CARD(device)
    *types = EVENT_XID;
    return SUCCESS;
}
API Return nvmlEventSetCreate(EventSet *set) {
    if (!state) return UNINITIALIZED;
    *set = (EventSet)1;
    event_tail = state->event_head;
    return SUCCESS;
}
API Return nvmlEventSetFree(EventSet set) {
    (void)set;
    return state ? SUCCESS : UNINITIALIZED;
}
API Return nvmlDeviceRegisterEvents(Device device, u64 types, EventSet set) {
    CARD(device)
    (void)types, (void)set;
    return SUCCESS;
}
API Return nvmlEventSetWait_v2(EventSet set, EventData *data, unsigned timeout_ms) {
    (void)set;
    for (unsigned waited = 0;; waited += 5) {
        if (!state) return UNINITIALIZED;
        if (event_tail < state->event_head) {
            const Event *event = &state->events[event_tail++ % EVENTS];
            *data = (EventData){(Device)(long)(event->card + 1), EVENT_XID, event->code, NO_INSTANCE, NO_INSTANCE};
            return SUCCESS;
        }
        if (waited >= timeout_ms) return TIMEOUT;
        nanosleep(&(struct timespec){0, 5000000}, NULL);
    }
}
