#pragma once
/* A listener of /api/stream asks by this: the query of its request. Pure. */
#include "head/admin/request_rows.h"

struct stream_query {
    struct request_view view; /* limit 0: no requests */
    uint64_t replica;         /* whose KV blocks; another one's where it does not serve */
    uint32_t i_kv;
    bool wants_kv;
    uint64_t next_sample, next_event; /* the first that it does not have */
    uint64_t walk;                    /* whose workers, replicas and summary it has; 0: none's */
};
/* STATUS_INVALID: the text names the parameter and what it may be. Unknown ones are ignored. */
MUST_USE enum status stream_query_parse(struct str query, struct stream_query *out,
                                        struct error *err);
