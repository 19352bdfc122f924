#include "gateway/request/pool_work.h"

#include "common/base/mem.h"

/* A larger body (bytes) may have a tree of thousands of values, which is freed on the pool. */
enum { MOST_FREED_HERE = 16 << 10 };

bool api_request_to_pool(struct api_request *r, struct encode_pool *pool,
                         const struct encode_job *job)
{
    r->job = *job;
    r->job.tenant = r->tenant;
    r->on_pool = encode_pool_submit(pool, &r->job) == STATUS_OK ? pool : NULL;
    return r->on_pool != NULL;
}

struct leftover {          /* of a request that has gone */
    struct encode_job job; /* first */
    struct prepared prepared;
    char *owned_body;
};

static void leftover_run(struct encode_job *j)
{
    struct leftover *l = (struct leftover *)j;
    prepared_fini(&l->prepared);
    mem_free(l->owned_body);
    l->owned_body = NULL;
}

static void leftover_done(struct encode_job *j)
{
    leftover_run(j); /* where the pool has ended before; else nothing is left */
    mem_free(j);
}

/* Freeing the tree of a million values takes a tenth of a second, which the loop has not; and the
 * kernel takes back the pages of a large body one by one. */
void api_request_free_prepared(struct api_request *r)
{
    if (!r->s->pool || r->body.len <= MOST_FREED_HERE) {
        prepared_fini(&r->prepared);
        mem_free(r->owned_body);
        return;
    }
    struct leftover *l = mem_zalloc(sizeof *l);
    l->job = (struct encode_job){
        .run = leftover_run, .done = leftover_done, .bytes = r->body.len, .tenant = r->tenant};
    l->prepared = r->prepared;
    l->owned_body = r->owned_body;
    r->prepared = (struct prepared){0};
    encode_pool_dispose(r->s->pool, &l->job);
}
