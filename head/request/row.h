#pragma once
/* A request as people see it: what is copied of it when it ends, or when a list of requests is
 * asked for. Pure.
 */
#include "head/request/state.h"

struct request_row {
    struct request_id id;
    uint64_t arrival_seq, replica_id;                          /* of who had it last */
    uint64_t arrival_ns, scheduled_ns, first_token_ns, end_ns; /* 0: not yet */
    uint32_t i_choice, n_prompt, n_cached, n_generated, n_max;
    int32_t priority;
    enum request_state state;
    enum finish_reason finish;
    bool has_replica;
};

struct request_times { /* UINT64_MAX: it did not come to that */
    uint64_t queue_ns, prefill_ns, decode_ns;
};
struct request_row request_row_of(const struct request *r);
/* now_ns: for what has not ended. */
struct request_times request_row_times(const struct request_row *row, uint64_t now_ns);
