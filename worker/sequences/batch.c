#include "worker/sequences/batch.h"

#include "common/base/mem.h"

void batch_init(struct batch *b, uint32_t pass_rows, uint32_t n_kv_groups)
{
    *b = (struct batch){
        .pass_rows = pass_rows, .n_kv_groups = n_kv_groups, .most_entries = PASS_TABLE_ENTRIES};
    b->ids = mem_array(pass_rows, sizeof *b->ids);
    b->positions = mem_array(pass_rows, sizeof *b->positions);
    b->adapters = mem_array(pass_rows, sizeof *b->adapters);
    b->samples = mem_array(pass_rows, sizeof *b->samples);
    b->prompt_logprobs = mem_array(pass_rows, sizeof *b->prompt_logprobs);
    b->pending = mem_array(pass_rows, sizeof *b->pending);
    b->kept = mem_array(pass_rows, sizeof *b->kept);
    for (uint32_t g = 0; g < n_kv_groups; g++)
        b->kv_rows[g] = mem_array(pass_rows, sizeof *b->kv_rows[g]);
}

void batch_fini(struct batch *b)
{
    mem_free(b->ids);
    mem_free(b->positions);
    mem_free(b->adapters);
    mem_free(b->samples);
    mem_free(b->prompt_logprobs);
    mem_free(b->pending);
    mem_free(b->kept);
    for (uint32_t g = 0; g < b->n_kv_groups; g++)
        mem_free(b->kv_rows[g]);
    *b = (struct batch){0};
}

/* LEAST_ROWS is the smallest number of rows of a pass with stages: on a CPU smaller passes cost
 * almost as much. */
enum { LEAST_ROWS = 8 };

static uint32_t rows_of_pass(const struct batch *b)
{
    uint64_t n_rows = 0, n_passes;
    for (uint32_t i = 0; i < b->runs.n; i++)
        n_rows += b->runs.ptr[i].n_tokens + b->runs.ptr[i].n_drafted;
    if (b->n_stages <= 1 || n_rows == 0)
        return b->pass_rows;
    uint64_t wanted = n_rows / LEAST_ROWS < b->n_stages ? n_rows / LEAST_ROWS : b->n_stages;
    n_passes = (n_rows + b->pass_rows - 1) / b->pass_rows;
    n_passes = n_passes < wanted ? wanted : n_passes;
    return (uint32_t)((n_rows + n_passes - 1) / n_passes);
}

void batch_begin(struct batch *b, struct sequence_runs runs)
{
    b->runs = runs;
    b->i_run = b->i_token = 0;
    b->rows_of_pass = rows_of_pass(b);
}

uint64_t batch_table_entries(const struct sequence *q, uint32_t n_kv_groups)
{
    uint64_t n = 0;
    for (uint32_t g = 0; g < n_kv_groups; g++)
        n += q->tables[g].n;
    return n;
}

static void add_row(struct batch *b, const struct sequence *q, uint32_t position)
{
    uint32_t i = b->rows.n_rows++;
    b->ids[i] = q->ids[position];
    if (q->is_pending && position + 1 == q->n_ids)
        b->pending[b->n_pending++] = (struct batch_pending){i, q};
    b->positions[i] = position;
    b->adapters[i] = q->adapter;
    if (q->adapter > 0)
        b->rows.adapters = b->adapters;
    for (uint32_t g = 0; g < b->n_kv_groups; g++)
        b->kv_rows[g][i] = (struct kv_row){
            .blocks = q->tables[g].ids, .n_dropped = q->tables[g].n_dropped, .position = position};
}

static void add_token(struct batch *b, const struct sequence_run *r, uint32_t i)
{
    uint32_t position = r->start + i;
    const struct sequence *q = r->q;
    bool sampled = r->sample && i + 1 >= r->n_tokens;
    bool is_prompt_logprob = q->sampling.n_prompt_logprobs >= 0 && position + 1 < q->n_prompt;
    if (sampled || is_prompt_logprob || q->sampling.pooling == POOLING_MEAN)
        b->kept[b->rows.n_kept++] = b->rows.n_rows;
    if (sampled)
        b->samples[b->n_samples++] = (struct batch_sample){b->rows.n_rows, r, i + 1 - r->n_tokens};
    if (is_prompt_logprob)
        b->prompt_logprobs[b->n_prompt_logprobs++] = (struct batch_prompt_logprob){
            b->rows.n_rows, q->ids[position + 1], q->sampling.n_prompt_logprobs};
    add_row(b, q, position);
}

bool batch_next(struct batch *b)
{
    b->rows = (struct row_batch){.ids = b->ids, .positions = b->positions, .kept = b->kept};
    b->n_samples = b->n_prompt_logprobs = b->n_pending = 0;
    b->i_first_run = b->i_run;
    b->i_first_token = b->i_token;
    for (uint32_t g = 0; g < b->n_kv_groups; g++)
        b->rows.kv_rows[g] = b->kv_rows[g];
    uint64_t n_entries = 0;
    while (b->i_run < b->runs.n && b->rows.n_rows < b->rows_of_pass) {
        const struct sequence_run *r = &b->runs.ptr[b->i_run];
        uint32_t n = r->n_tokens + r->n_drafted;
        n_entries += batch_table_entries(r->q, b->n_kv_groups);
        if (n_entries > b->most_entries && b->rows.n_rows > 0)
            break;
        while (b->i_token < n && b->rows.n_rows < b->rows_of_pass)
            add_token(b, r, b->i_token++);
        if (b->i_token < n)
            break;
        b->i_run++;
        b->i_token = 0;
    }
    return b->rows.n_rows > 0;
}
