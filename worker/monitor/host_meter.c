#include "worker/monitor/host_meter.h"

#include "common/base/clock.h"
#include "common/host/host.h"

void host_meter_init(struct host_meter *m, uint32_t threads)
{
    const struct host_machine machine = host_machine();
    *m = (struct host_meter){.now = {.threads = threads ? threads : host_cpus(),
                                     .id = machine.id,
                                     .cpus = machine.cpus,
                                     .memory_bytes = machine.memory_bytes}};
}

struct host_state host_meter_look(struct host_meter *m, uint64_t now_ns)
{
    if (m->since_ns && now_ns - m->since_ns < NS_PER_S)
        return m->now;
    const struct host_usage u = host_usage();
    if (m->since_ns)
        m->now.millicores = (uint32_t)((u.cpu_ns - m->cpu_ns) * 1000 / (now_ns - m->since_ns));
    m->now.resident_bytes = u.resident_bytes;
    m->since_ns = now_ns;
    m->cpu_ns = u.cpu_ns;
    return m->now;
}
