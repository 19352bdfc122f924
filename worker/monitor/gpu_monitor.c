#include "worker/monitor/gpu_monitor.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/mem.h"
#include "common/host/thread.h"

enum { PERIOD_MS = 2000, STOP_MS = 1000 };

/* Declares the used parts of NVML's interface, with their names and numbers. The ABI is stable. */
struct nvml_memory {
    unsigned long long total, free, used;
};
struct nvml_utilization {
    unsigned gpu, memory; /* percent of the last sample period */
};
enum { NVML_SUCCESS = 0, NVML_TEMPERATURE_GPU = 0 };
typedef void *nvml_device;

struct nvml {
    int (*init)(void);
    int (*shutdown)(void);
    const char *(*error_string)(int);
    int (*by_pci)(const char *, nvml_device *);
    int (*memory)(nvml_device, struct nvml_memory *);
    int (*utilization)(nvml_device, struct nvml_utilization *);
    int (*temperature)(nvml_device, int, unsigned *);
    int (*power)(nvml_device, unsigned *); /* writes the power in milliwatts */
};

struct gpu_monitor {
    void *library;
    struct nvml nvml;
    nvml_device device;
    uint32_t period_ms;
    pthread_t thread;
    pthread_mutex_t mutex; /* guards the fields below */
    pthread_cond_t wake;
    struct gpu_state state;
    bool stop, ended;
};

static enum status load(struct gpu_monitor *m, const char *library, struct error *err)
{
    const struct {
        const char *name;
        void *at;
    } calls[] = {{"nvmlInit_v2", &m->nvml.init},
                 {"nvmlShutdown", &m->nvml.shutdown},
                 {"nvmlErrorString", &m->nvml.error_string},
                 {"nvmlDeviceGetHandleByPciBusId_v2", &m->nvml.by_pci},
                 {"nvmlDeviceGetMemoryInfo", &m->nvml.memory},
                 {"nvmlDeviceGetUtilizationRates", &m->nvml.utilization},
                 {"nvmlDeviceGetTemperature", &m->nvml.temperature},
                 {"nvmlDeviceGetPowerUsage", &m->nvml.power}};
    m->library = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (!m->library)
        return error_set(err, STATUS_UNSUPPORTED, "%s", dlerror());
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        void *f = dlsym(m->library, calls[i].name);
        if (!f)
            return error_set(err, STATUS_UNSUPPORTED, "%s lacks the function %s. Update the driver",
                             library, calls[i].name);
        memcpy(calls[i].at, &f, sizeof f);
    }
    return STATUS_OK;
}

static enum status find_device(struct gpu_monitor *m, const char *pci, struct error *err)
{
    int rc = m->nvml.init();
    if (rc != NVML_SUCCESS)
        return error_set(err, STATUS_UNSUPPORTED, "cannot watch the GPU: NVML cannot be used: %s",
                         m->nvml.error_string(rc));
    rc = m->nvml.by_pci(pci, &m->device);
    if (rc == NVML_SUCCESS)
        return STATUS_OK;
    m->nvml.shutdown();
    return error_set(err, STATUS_UNSUPPORTED, "NVML cannot find the GPU %s: %s", pci,
                     m->nvml.error_string(rc));
}

/* Reads the device's state. Values that it does not report (a MIG part) stay 0. */
static struct gpu_state ask(const struct gpu_monitor *m)
{
    struct gpu_state s = {0};
    struct nvml_memory memory;
    struct nvml_utilization busy;
    unsigned n;
    if (m->nvml.memory(m->device, &memory) == NVML_SUCCESS) {
        s.memory_used = memory.used;
        s.memory_total = memory.total;
    }
    if (m->nvml.utilization(m->device, &busy) == NVML_SUCCESS)
        s.busy_percent = busy.gpu;
    if (m->nvml.temperature(m->device, NVML_TEMPERATURE_GPU, &n) == NVML_SUCCESS)
        s.celsius = n;
    if (m->nvml.power(m->device, &n) == NVML_SUCCESS)
        s.milliwatts = n;
    return s;
}

static struct timespec in_ms(uint32_t ms)
{
    uint64_t until = clock_mono_ns() + ms * NS_PER_MS;
    return (struct timespec){(time_t)(until / NS_PER_S), (long)(until % NS_PER_S)};
}

static void *monitor_main(void *arg)
{
    struct gpu_monitor *m = arg;
    thread_begin("gpu_monitor", 0);
    pthread_mutex_lock(&m->mutex);
    while (!m->stop) {
        pthread_mutex_unlock(&m->mutex);
        struct gpu_state s = ask(m);
        struct timespec until = in_ms(m->period_ms);
        pthread_mutex_lock(&m->mutex);
        m->state = s;
        while (!m->stop && pthread_cond_timedwait(&m->wake, &m->mutex, &until) != ETIMEDOUT)
            continue;
    }
    m->ended = true;
    pthread_cond_broadcast(&m->wake);
    pthread_mutex_unlock(&m->mutex);
    return NULL;
}

static void close_all(struct gpu_monitor *m)
{
    if (m->library)
        dlclose(m->library);
    pthread_cond_destroy(&m->wake);
    pthread_mutex_destroy(&m->mutex);
    mem_free(m);
}

enum status gpu_monitor_start(const struct gpu_monitor_options *o, struct gpu_monitor **out,
                              struct error *err)
{
    struct gpu_monitor *m = mem_zalloc(sizeof *m);
    pthread_condattr_t attr;
    *out = NULL;
    m->period_ms = o->period_ms ? o->period_ms : PERIOD_MS;
    pthread_mutex_init(&m->mutex, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&m->wake, &attr);
    pthread_condattr_destroy(&attr);
    enum status s = load(m, o->library ? o->library : "libnvidia-ml.so.1", err);
    if (s == STATUS_OK)
        s = find_device(m, o->pci, err);
    if (s == STATUS_OK) {
        int rc = pthread_create(&m->thread, NULL, monitor_main, m);
        if (rc != 0) {
            m->nvml.shutdown();
            s = error_set(err, STATUS_LIMIT, "cannot start the thread that watches the GPU: %s",
                          strerror(rc));
        }
    }
    if (s != STATUS_OK) {
        close_all(m);
        return s;
    }
    *out = m;
    return STATUS_OK;
}

struct gpu_state gpu_monitor_read(struct gpu_monitor *m)
{
    pthread_mutex_lock(&m->mutex);
    struct gpu_state s = m->state;
    pthread_mutex_unlock(&m->mutex);
    return s;
}

void gpu_monitor_stop(struct gpu_monitor *m)
{
    if (!m)
        return;
    struct timespec until = in_ms(STOP_MS);
    pthread_mutex_lock(&m->mutex);
    m->stop = true;
    pthread_cond_broadcast(&m->wake);
    while (!m->ended && pthread_cond_timedwait(&m->wake, &m->mutex, &until) != ETIMEDOUT)
        continue;
    bool ended = m->ended;
    pthread_mutex_unlock(&m->mutex);
    if (!ended) { /* the thread hangs in the driver and stays until the process ends */
        pthread_detach(m->thread);
        return;
    }
    pthread_join(m->thread, NULL);
    m->nvml.shutdown();
    close_all(m);
}
