#include "head/request/row.h"

#define NEVER UINT64_MAX

struct request_row request_row_of(const struct request *r)
{
    return (struct request_row){
        .id = r->id,
        .arrival_seq = r->arrival_seq,
        .replica_id = r->replica_id,
        .arrival_ns = r->arrival_ns,
        .scheduled_ns = r->scheduled_ns,
        .first_token_ns = r->first_token_ns,
        .i_choice = r->i_choice,
        .n_prompt = r->n_prompt,
        .n_cached = r->n_cached,
        .n_generated = request_n_generated(r),
        .n_max = r->ids_cap > r->n_prompt ? r->ids_cap - r->n_prompt : 0,
        .priority = r->priority,
        .state = r->state,
        .finish = r->finish,
        .has_replica = r->has_replica,
    };
}

static uint64_t span(uint64_t from_ns, uint64_t to_ns)
{
    return to_ns > from_ns ? to_ns - from_ns : 0;
}

struct request_times request_row_times(const struct request_row *row, uint64_t now_ns)
{
    uint64_t end = row->end_ns ? row->end_ns : now_ns;
    uint64_t first = row->first_token_ns, scheduled = row->scheduled_ns;
    struct request_times t = {NEVER, NEVER, NEVER};
    t.queue_ns = span(row->arrival_ns, scheduled ? scheduled : first ? first : end);
    if (scheduled)
        t.prefill_ns = span(scheduled, first ? first : end);
    if (first)
        t.decode_ns = span(first, end);
    return t;
}
