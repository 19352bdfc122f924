#include "head/links/events.h"

#include <stdio.h>

#include "common/base/mem.h"

void events_init(struct events *e, uint64_t wall_offset_ns)
{
    *e = (struct events){.next_seq = 1, .wall_offset_ns = wall_offset_ns};
    e->ring = mem_array(EVENTS_CAP, sizeof *e->ring);
}

void events_fini(struct events *e)
{
    mem_free(e->ring);
    *e = (struct events){0};
}

void events_add(struct events *e, uint64_t now_ns, enum log_level level, const char *name,
                const char *fmt, ...)
{
    struct event *ev = &e->ring[e->next_seq % EVENTS_CAP];
    ev->seq = e->next_seq++;
    ev->wall_ns = now_ns + e->wall_offset_ns;
    ev->level = level;
    ev->name = name;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(ev->fields, sizeof ev->fields, fmt, ap);
    va_end(ap);
    va_start(ap, fmt);
    log_event_v(level, name, fmt, ap);
    va_end(ap);
}

const struct event *events_get(const struct events *e, uint64_t since)
{
    uint64_t oldest = e->next_seq > EVENTS_CAP ? e->next_seq - EVENTS_CAP : 1;
    uint64_t seq = since > oldest ? since : oldest;
    return seq < e->next_seq ? &e->ring[seq % EVENTS_CAP] : NULL;
}
