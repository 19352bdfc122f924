#pragma once
/* Recently ended requests, for the dashboard: a ring that the core fills in O(1). Pure. */
#include "head/request/row.h"

#define REQUEST_ROWS_ENDED 1024u

struct ended_requests {
    struct request_row *ring; /* [REQUEST_ROWS_ENDED]; the newest is at (n - 1) % that */
    uint64_t n;               /* requests that ever ended */
};
void ended_requests_init(struct ended_requests *e);
void ended_requests_fini(struct ended_requests *e);
void ended_requests_add(struct ended_requests *e, const struct request *r, uint64_t now_ns);
/* Marks the newest one as finished: the gateway ended it at a stop string. */
void ended_requests_finish_last(struct ended_requests *e);
/* Returns the i-th newest. Returns NULL when it is no longer kept, or never existed. */
const struct request_row *ended_requests_at(const struct ended_requests *e, uint64_t i);
