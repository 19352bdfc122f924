/* Replaces libnvidia-ml.so.1, with the calls that worker/monitor/gpu_monitor.c makes. Each
 * memory query reports more memory in use. Device ff:00.0 does not exist, ee:00.0 supports few
 * queries, and dd:00.0 never answers. */
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#define GIB (1ull << 30)
enum { SUCCESS = 0, NOT_SUPPORTED = 3, NOT_FOUND = 6 };
enum kind { WHOLE, LITTLE, DEAF };
static enum kind kinds[] = {WHOLE, LITTLE, DEAF};
static _Atomic unsigned n_asked;

struct memory {
    unsigned long long total, free, used;
};
struct utilization {
    unsigned gpu, memory;
};

int nvmlInit_v2(void);
int nvmlShutdown(void);
const char *nvmlErrorString(int rc);
int nvmlDeviceGetHandleByPciBusId_v2(const char *pci, void **out);
int nvmlDeviceGetMemoryInfo(void *device, struct memory *out);
int nvmlDeviceGetUtilizationRates(void *device, struct utilization *out);
int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *out);
int nvmlDeviceGetPowerUsage(void *device, unsigned *out);

int nvmlInit_v2(void)
{
    return SUCCESS;
}

int nvmlShutdown(void)
{
    return SUCCESS;
}

const char *nvmlErrorString(int rc)
{
    return rc == NOT_FOUND ? "Not Found" : "Not Supported";
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *pci, void **out)
{
    if (strstr(pci, "ff:00.0"))
        return NOT_FOUND;
    *out = &kinds[strstr(pci, "ee:00.0") ? LITTLE : strstr(pci, "dd:00.0") ? DEAF : WHOLE];
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo(void *device, struct memory *out)
{
    while (*(enum kind *)device == DEAF)
        sleep(1000);
    unsigned n = atomic_fetch_add(&n_asked, 1) + 1;
    *out = (struct memory){140 * GIB, (140 - n % 100) * GIB, n % 100 * GIB};
    return SUCCESS;
}

int nvmlDeviceGetUtilizationRates(void *device, struct utilization *out)
{
    *out = (struct utilization){87, 40};
    return *(enum kind *)device == LITTLE ? NOT_SUPPORTED : SUCCESS;
}

int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *out)
{
    *out = 61;
    return *(enum kind *)device == LITTLE || sensor != 0 ? NOT_SUPPORTED : SUCCESS;
}

int nvmlDeviceGetPowerUsage(void *device, unsigned *out)
{
    *out = 512300;
    return *(enum kind *)device == LITTLE ? NOT_SUPPORTED : SUCCESS;
}
