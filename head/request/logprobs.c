#include "head/request/logprobs.h"

#include <string.h>

#include "common/base/mem.h"

enum { MIN_ROWS = 16 };

static void free_rows(struct token_rows *t, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        mem_free((void *)t->rows[i].ids.ptr);
}

static void lose(struct token_rows *t)
{
    free_rows(t, t->n);
    mem_free(t->rows);
    *t = (struct token_rows){.lost = true};
}

/* Allocates the list of rows; tokens before `from` have no rows. */
static struct token_rows *begin(struct request *r)
{
    struct token_rows *t = arena_try_alloc(&r->arena, sizeof *t);
    if (t)
        *t = (struct token_rows){.from = r->n_delivered};
    return r->logprobs = t;
}

static bool grow(struct token_rows *t, uint32_t n)
{
    uint32_t cap = t->cap ? t->cap : MIN_ROWS;
    while (cap < n)
        cap *= 2;
    struct logprob_row *rows = mem_try_realloc(t->rows, cap * sizeof *rows);
    if (!rows)
        return false;
    memset(rows + t->cap, 0, (cap - t->cap) * sizeof *rows);
    t->rows = rows;
    t->cap = cap;
    return true;
}

/* Copies a row into one allocation: ids, then values. Without memory the copy is an empty row. */
static struct logprob_row copy_of(const struct logprob_row *row)
{
    const uint32_t n = row->ids.n, n_values = row->values.n;
    uint32_t *ids = n + n_values > 0
                        ? mem_try_alloc(n * sizeof *ids + n_values * sizeof *row->values.ptr)
                        : NULL;
    if (!ids)
        return (struct logprob_row){0};
    float *values = (float *)(ids + n);
    if (n > 0)
        memcpy(ids, row->ids.ptr, n * sizeof *ids);
    if (n_values > 0)
        memcpy(values, row->values.ptr, n_values * sizeof *values);
    return (struct logprob_row){{ids, n}, {values, n_values}, row->chosen_rank};
}

void request_push_row(struct request *r, const struct logprob_row *row)
{
    struct token_rows *t = r->logprobs ? r->logprobs : begin(r);
    if (!t || t->lost)
        return;
    const uint32_t n = request_n_generated(r) - t->from;
    if (n > t->cap && !grow(t, n)) {
        lose(t);
        return;
    }
    t->rows[n - 1] = copy_of(row);
    t->n = n;
}

const struct logprob_row *request_undelivered_rows(const struct request *r)
{
    const struct token_rows *t = r->logprobs;
    return t && t->n > 0 ? t->rows + (r->n_delivered - t->from) : NULL;
}

void request_rows_delivered(struct request *r)
{
    struct token_rows *t = r->logprobs;
    if (!t || t->lost || r->n_delivered <= t->from)
        return;
    const uint32_t n_left = request_n_generated(r) - r->n_delivered, n_gone = t->n - n_left;
    free_rows(t, n_gone);
    memmove(t->rows, t->rows + n_gone, n_left * sizeof *t->rows);
    memset(t->rows + n_left, 0, n_gone * sizeof *t->rows);
    t->n = n_left;
    t->from = r->n_delivered;
}

bool request_has_rows_from(const struct request *r, uint32_t n_generated)
{
    return !r->logprobs || r->logprobs->lost || n_generated >= r->logprobs->from;
}

void request_logprobs_fini(struct request *r)
{
    if (!r->logprobs)
        return;
    free_rows(r->logprobs, r->logprobs->n);
    mem_free(r->logprobs->rows);
}
