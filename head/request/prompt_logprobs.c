#include "head/request/prompt_logprobs.h"

#include <assert.h>
#include <string.h>

#include "common/base/mem.h"

/* Holds the rows of one result in one allocation: rows, then all ids, then all values. */
struct logprob_chunk {
    struct logprob_chunk *next;
    uint32_t n, n_sent;
    struct logprob_row rows[];
};

bool request_prompt_logprobs_init(struct request *r, uint32_t n_received)
{
    uint32_t n_rows = r->n_prompt - 1;
    if (r->sampling.n_prompt_logprobs < 0 || n_rows == 0)
        return true;
    struct request_prompt_logprobs *s = arena_try_alloc(&r->arena, sizeof *s);
    if (!s)
        return false;
    uint32_t n = n_received < n_rows ? n_received : n_rows;
    *s = (struct request_prompt_logprobs){.n_rows = n_rows, .n_known = n, .n_delivered = n};
    s->newest = &s->chunks;
    r->prompt_logprobs = s;
    r->has_prompt_logprobs = true;
    return true;
}

void request_prompt_logprobs_fini(struct request *r)
{
    for (struct logprob_chunk *c = r->has_prompt_logprobs ? r->prompt_logprobs->chunks : NULL,
                              *next;
         c; c = next) {
        next = c->next;
        mem_free(c);
    }
}

bool request_prompt_logprobs_answer(const struct request *r, uint32_t start, uint32_t n_tokens,
                                    const struct logprob_row *rows, uint32_t n)
{
    uint32_t most = (uint32_t)r->sampling.n_prompt_logprobs + 1;
    if (n != request_n_prompt_logprobs_of(r, start, n_tokens))
        return false;
    for (uint32_t i = 0; i < n; i++)
        if (rows[i].ids.n == 0 || rows[i].ids.n > most || rows[i].values.n != rows[i].ids.n ||
            rows[i].ids.ptr[0] != r->ids[start + i + 1])
            return false;
    return true;
}

/* Allocates a chunk and copies the rows to it. Returns NULL when memory is missing. */
static struct logprob_chunk *chunk_new(const struct logprob_row *rows, uint32_t n)
{
    size_t n_entries = 0;
    for (uint32_t i = 0; i < n; i++)
        n_entries += rows[i].ids.n;
    struct logprob_chunk *c = mem_try_alloc(sizeof *c + n * sizeof *c->rows +
                                            n_entries * (sizeof(uint32_t) + sizeof(float)));
    if (!c)
        return NULL;
    *c = (struct logprob_chunk){.n = n};
    uint32_t *ids = (uint32_t *)&c->rows[n];
    float *values = (float *)(ids + n_entries);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t k = rows[i].ids.n;
        memcpy(ids, rows[i].ids.ptr, k * sizeof *ids);
        memcpy(values, rows[i].values.ptr, k * sizeof *values);
        c->rows[i] = (struct logprob_row){{ids, k}, {values, k}, rows[i].chosen_rank};
        ids += k;
        values += k;
    }
    return c;
}

void request_take_prompt_logprobs(struct request *r, uint32_t start, const struct logprob_row *rows,
                                  uint32_t n)
{
    struct request_prompt_logprobs *s = r->prompt_logprobs;
    uint64_t end = (uint64_t)start + n;
    /* The rows are already known, or follow rows for which there was no memory. */
    if (start > s->n_known || end <= s->n_known)
        return;
    uint32_t n_old = s->n_known - start;
    struct logprob_chunk *c = chunk_new(rows + n_old, n - n_old);
    if (!c) {
        s->out_of_memory = true;
        return;
    }
    *s->newest = c;
    s->newest = &c->next;
    s->n_known = (uint32_t)end;
}

uint32_t request_next_prompt_logprobs(const struct request *r, const struct logprob_row **rows)
{
    const struct logprob_chunk *c = r->has_prompt_logprobs ? r->prompt_logprobs->chunks : NULL;
    *rows = c ? c->rows + c->n_sent : NULL;
    return c ? c->n - c->n_sent : 0;
}

void request_prompt_logprobs_delivered(struct request *r, uint32_t n)
{
    struct request_prompt_logprobs *s = r->prompt_logprobs;
    struct logprob_chunk *c = s->chunks;
    assert(c && n <= c->n - c->n_sent);
    s->n_delivered += n;
    c->n_sent += n;
    if (c->n_sent < c->n)
        return;
    s->chunks = c->next;
    if (!s->chunks)
        s->newest = &s->chunks;
    mem_free(c);
}
