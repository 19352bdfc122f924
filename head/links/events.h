#pragma once
/* Keeps recent events, for `cox events` and the dashboard, in a bounded ring of (seq, time,
 * name, fields). Each event is also logged when it is added. Fields are logfmt text, which both
 * the log line and the admin API's JSON use. The caller passes the time. The code runs on the
 * loop thread. */
#include <stdint.h>

#include "common/base/log.h"

#define EVENTS_CAP         512u
#define EVENT_FIELDS_BYTES 320u

struct event {
    uint64_t seq, wall_ns;
    enum log_level level;
    const char *name; /* a name in static storage */
    char fields[EVENT_FIELDS_BYTES];
};

struct events {
    uint64_t next_seq;       /* number of the next event; the first is 1 */
    uint64_t wall_offset_ns; /* wall clock minus monotonic clock */
    struct event *ring;      /* array of EVENTS_CAP events; event `seq` is at seq % EVENTS_CAP */
};

void events_init(struct events *e, uint64_t wall_offset_ns);
void events_fini(struct events *e);
void events_add(struct events *e, uint64_t now_ns, enum log_level level, const char *name,
                const char *fmt, ...) PRINTF_LIKE(5, 6);
/* Returns the oldest kept event with seq >= since, or NULL. */
const struct event *events_get(const struct events *e, uint64_t since);
