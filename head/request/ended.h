#pragma once
/* Requests that ended of late, for people: a ring that the core fills, O(1) each. Pure. */
#include "head/request/row.h"

#define REQUEST_ROWS_ENDED 1024u

struct ended_requests {
    struct request_row *ring; /* [REQUEST_ROWS_ENDED] */
    uint64_t n;               /* that ever ended */
};
void ended_requests_init(struct ended_requests *e);
void ended_requests_fini(struct ended_requests *e);
void ended_requests_add(struct ended_requests *e, const struct request *r, uint64_t now_ns);
/* The last one had a stop string's end: like others. */
void ended_requests_finish_last(struct ended_requests *e);
/* The i-th newest; NULL: no longer, or never, there. */
const struct request_row *ended_requests_at(const struct ended_requests *e, uint64_t i);
