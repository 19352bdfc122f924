#include "gateway/request/pool_work.h"

#include "common/base/mem.h"

/* `MOST_FREED_HERE` is the largest body whose values the loop frees. A larger body may have a
 * tree of thousands of values, which the pool frees. */
enum { MOST_FREED_HERE = 16 << 10 };

bool api_request_to_pool(struct api_request *r, struct encode_pool *pool,
                         const struct encode_job *job)
{
    r->job = *job;
    r->job.tenant = r->tenant;
    r->on_pool = encode_pool_submit(pool, &r->job) == STATUS_OK ? pool : NULL;
    return r->on_pool != NULL;
}

struct leftover {          /* memory of a request that has ended */
    struct encode_job job; /* must be the first field: the job's address is the leftover's */
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
    leftover_run(j); /* frees the memory now if the pool ended before the job ran */
    mem_free(j);
}

/* Frees a parsed body and its bytes. A tree of a million values takes 0.1 s to free, which is too
 * long for the loop. The pages of a large body also return to the kernel one by one. */
static void free_leftover(const struct api_request *r, struct prepared *p, char *owned_body)
{
    if (!r->s->pool || r->body.len <= MOST_FREED_HERE) {
        prepared_fini(p);
        mem_free(owned_body);
        return;
    }
    struct leftover *l = mem_zalloc(sizeof *l);
    l->job = (struct encode_job){
        .run = leftover_run, .done = leftover_done, .bytes = r->body.len, .tenant = r->tenant};
    l->prepared = *p;
    l->owned_body = owned_body;
    *p = (struct prepared){0};
    encode_pool_dispose(r->s->pool, &l->job);
}

void api_request_free_prepared(struct api_request *r)
{
    free_leftover(r, &r->prepared, r->owned_body);
}

void api_request_forget_body(struct api_request *r)
{
    struct prepared none = {0};
    if (!r->keeps_body)
        return;
    r->keeps_body = false;
    free_leftover(r, &none, r->owned_body);
    r->owned_body = NULL;
    r->body.ptr = NULL;
    if (r->reply && r->reply_ops->release_body)
        r->reply_ops->release_body(r->reply);
}
