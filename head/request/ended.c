#include "head/request/ended.h"

#include "common/base/mem.h"

void ended_requests_init(struct ended_requests *e)
{
    *e = (struct ended_requests){.ring = mem_array(REQUEST_ROWS_ENDED, sizeof *e->ring)};
}

void ended_requests_fini(struct ended_requests *e)
{
    mem_free(e->ring);
    *e = (struct ended_requests){0};
}

void ended_requests_add(struct ended_requests *e, const struct request *r, uint64_t now_ns)
{
    struct request_row *row = &e->ring[e->n++ % REQUEST_ROWS_ENDED];
    *row = request_row_of(r);
    row->end_ns = now_ns;
    if (row->state <= REQUEST_PREEMPTED) /* the request was removed before it ended */
        row->state = REQUEST_CANCELLED;
}

void ended_requests_finish_last(struct ended_requests *e)
{
    struct request_row *row = &e->ring[(e->n - 1) % REQUEST_ROWS_ENDED];
    row->state = REQUEST_FINISHED;
    row->finish = FINISH_STOP;
}

const struct request_row *ended_requests_at(const struct ended_requests *e, uint64_t i)
{
    if (i >= e->n || i >= REQUEST_ROWS_ENDED)
        return NULL;
    return &e->ring[(e->n - 1 - i) % REQUEST_ROWS_ENDED];
}
