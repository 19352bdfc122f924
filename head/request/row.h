#pragma once
/* Holds the fields of a request that the dashboard shows, copied when the request ends or when
 * requests are listed. The code does no I/O. */
#include "head/request/state.h"

struct request_row {
    struct request_id id;
    uint64_t arrival_seq, replica_id; /* replica_id: the last replica that had the request */
    /* times at which the request reached its phases; 0 = not reached yet */
    uint64_t arrival_ns, scheduled_ns, first_token_ns, end_ns;
    uint32_t i_choice, n_prompt, n_cached, n_generated, n_max;
    int32_t priority;
    enum request_state state;
    enum finish_reason finish;
    bool has_replica;
};

struct request_times { /* Holds the durations of the phases; UINT64_MAX = phase not reached. */
    uint64_t queue_ns, prefill_ns, decode_ns;
};
struct request_row request_row_of(const struct request *r);
/* Computes the durations of a request's phases. A request that has not ended is measured up to
 * `now_ns`. */
struct request_times request_row_times(const struct request_row *row, uint64_t now_ns);
