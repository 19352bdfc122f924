#pragma once
/* Keeps recently ended requests, for the dashboard, in a ring that the core fills in O(1). The
 * code does no I/O. */
#include "head/request/row.h"

#define REQUEST_ROWS_ENDED 1024u

struct ended_requests {
    /* array of REQUEST_ROWS_ENDED; the newest row is at (n - 1) % REQUEST_ROWS_ENDED */
    struct request_row *ring;
    uint64_t n; /* number of requests that ever ended */
};
void ended_requests_init(struct ended_requests *e);
void ended_requests_fini(struct ended_requests *e);
void ended_requests_add(struct ended_requests *e, const struct request *r, uint64_t now_ns);
/* Marks the newest request as finished, because the gateway ended it at a stop string. */
void ended_requests_finish_last(struct ended_requests *e);
/* Returns the i-th newest request, or NULL when it is no longer kept or never existed. */
const struct request_row *ended_requests_at(const struct ended_requests *e, uint64_t i);
