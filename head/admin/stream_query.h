#pragma once
/* Parses the query of a request for /api/stream, which selects the parts of the listener's
 * updates. The code does no I/O. */
#include "head/admin/request_rows.h"

struct stream_query {
    struct request_view view; /* page of requests; limit 0 = no requests */
    /* `replica` is the id of the replica for the KV map. If no live replica has the id, the map
     * shows the first live replica. */
    uint64_t replica;
    uint32_t i_kv;
    bool wants_kv;
    /* number of the first sample and of the first event that the listener does not have */
    uint64_t next_sample, next_event;
    uint64_t walk; /* version of workers, replicas and summary that the listener has; 0 = none */
};
/* Parses the query into `out`. Returns STATUS_INVALID with a text that names the parameter and
 * its allowed values. Unknown parameters are ignored. */
MUST_USE enum status stream_query_parse(struct str query, struct stream_query *out,
                                        struct error *err);
