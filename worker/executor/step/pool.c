/* Makes vectors of prompts from the rows of pooling requests after the final norm, on the
 * sampling rank. A mean is summed position by position in double, so that it has the same bits
 * for every division of the prompt into chunks and passes. */
#include "worker/executor/step/pool.h"

#include <math.h>

#include "worker/executor/state.h"
#include "worker/runner/logits.h"

/* `pooled_row` is a row of the pass that pooling needs. */
struct pooled_row {
    uint32_t row;
    const struct sequence_run *run;
    bool last; /* the row is the last one of the prompt */
};

/* `pool_walk` is an iterator over the rows of a pass. */
struct pool_walk {
    const struct batch *b;
    uint32_t i_run, i_token, i_row;
};

/* Finds the next rows that pooling needs, at most as many as runner_normed accepts in one call. */
static uint32_t next_rows(struct pool_walk *w, struct pooled_row out[RUNNER_LOGITS_ROWS])
{
    uint32_t n = 0;
    for (; w->i_row < w->b->rows.n_rows && n < RUNNER_LOGITS_ROWS; w->i_row++) {
        const struct sequence_run *r = &w->b->runs.ptr[w->i_run];
        while (w->i_token == r->n_tokens + r->n_drafted) { /* the run has ended or has no rows */
            r = &w->b->runs.ptr[++w->i_run];
            w->i_token = 0;
        }
        bool last = ++w->i_token == r->n_tokens && r->sample;
        enum pooling_kind kind = r->q->sampling.pooling;
        if (kind == POOLING_MEAN || (kind == POOLING_LAST && last))
            out[n++] = (struct pooled_row){w->i_row, r, last};
    }
    return n;
}

static enum status no_memory(const struct sequence *q, struct error *err)
{
    return error_set(err, STATUS_NO_MEMORY,
                     "not enough memory for the vector of slot %u. Free memory on this machine",
                     q->slot);
}

static enum status add_row(struct sequence *q, const float *x, uint32_t n, struct error *err)
{
    if (!q->pooled)
        q->pooled = arena_try_array(&q->arena, n, sizeof *q->pooled);
    if (!q->pooled)
        return no_memory(q, err);
    for (uint32_t i = 0; i < n; i++)
        q->pooled[i] = (q->n_pooled > 0 ? q->pooled[i] : 0) + (double)x[i];
    q->n_pooled++;
    return STATUS_OK;
}

static double length_of(const double *x, uint32_t n)
{
    double squares = 0;
    for (uint32_t i = 0; i < n; i++)
        squares += x[i] * x[i];
    return sqrt(squares);
}

/* Makes the final vector. A vector of zeros has no direction and is not normalised. */
static enum status finish(struct sequence *q, uint32_t n, struct arena *arena, struct error *err)
{
    float *out = arena_try_array(arena, n, sizeof *out);
    if (!out)
        return no_memory(q, err);
    for (uint32_t i = 0; i < n; i++)
        q->pooled[i] /= q->n_pooled;
    double length = q->sampling.pooling_normalise ? length_of(q->pooled, n) : 1;
    for (uint32_t i = 0; i < n; i++)
        out[i] = (float)(length > 0 ? q->pooled[i] / length : q->pooled[i]);
    q->vector = (struct f32_span){out, n};
    return STATUS_OK;
}

enum status executor_pool_pass(struct executor_model *x, struct arena *arena, struct error *err)
{
    const struct batch *b = &x->batch;
    uint32_t hidden = x->engine->config.hidden, n;
    struct pool_walk w = {.b = b, .i_run = b->i_first_run, .i_token = b->i_first_token};
    struct pooled_row pooled[RUNNER_LOGITS_ROWS];
    while ((n = next_rows(&w, pooled)) > 0) {
        uint32_t rows[RUNNER_LOGITS_ROWS];
        const float *out;
        for (uint32_t i = 0; i < n; i++)
            rows[i] = pooled[i].row;
        TRY(runner_normed(x->engine->runner, rows, n, &out, err));
        for (uint32_t i = 0; i < n; i++) {
            struct sequence *q = pooled[i].run->q;
            TRY(add_row(q, out + (size_t)i * hidden, hidden, err));
            if (pooled[i].last)
                TRY(finish(q, hidden, arena, err));
        }
    }
    return STATUS_OK;
}
