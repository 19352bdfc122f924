#include "worker/batch.h"

#include "common/base/mem.h"

void batch_init(struct batch *b, uint32_t pass_rows, uint32_t n_kv_groups)
{
    *b = (struct batch){.pass_rows = pass_rows, .n_kv_groups = n_kv_groups};
    b->ids = mem_array(pass_rows, sizeof *b->ids);
    b->positions = mem_array(pass_rows, sizeof *b->positions);
    b->samples = mem_array(pass_rows, sizeof *b->samples);
    for (uint32_t g = 0; g < n_kv_groups; g++)
        b->kv_rows[g] = mem_array(pass_rows, sizeof *b->kv_rows[g]);
}

void batch_fini(struct batch *b)
{
    mem_free(b->ids);
    mem_free(b->positions);
    mem_free(b->samples);
    for (uint32_t g = 0; g < b->n_kv_groups; g++)
        mem_free(b->kv_rows[g]);
    *b = (struct batch){0};
}

void batch_begin(struct batch *b, const struct msg_plan *plan)
{
    b->plan = plan;
    b->i_run = b->i_token = 0;
}

static void add_row(struct batch *b, const struct sequence *q, uint32_t position)
{
    uint32_t i = b->rows.n_rows++;
    b->ids[i] = q->ids[position];
    b->positions[i] = position;
    for (uint32_t g = 0; g < b->n_kv_groups; g++)
        b->kv_rows[g][i] = (struct kv_row){
            .blocks = q->tables[g].ids, .n_dropped = q->tables[g].n_dropped, .position = position};
}

bool batch_next(struct batch *b, const struct sequences *s)
{
    b->rows = (struct row_batch){.ids = b->ids, .positions = b->positions};
    b->n_samples = 0;
    for (uint32_t g = 0; g < b->n_kv_groups; g++)
        b->rows.kv_rows[g] = b->kv_rows[g];
    while (b->i_run < b->plan->n_runs && b->rows.n_rows < b->pass_rows) {
        const struct plan_run *r = &b->plan->runs[b->i_run];
        struct sequence *q = sequences_find(s, r->slot);
        while (b->i_token < r->n_tokens && b->rows.n_rows < b->pass_rows)
            add_row(b, q, r->start + b->i_token++);
        if (b->i_token < r->n_tokens)
            break;
        if (r->sample)
            b->samples[b->n_samples++] = (struct batch_sample){b->rows.n_rows - 1, q};
        b->i_run++;
        b->i_token = 0;
    }
    return b->rows.n_rows > 0;
}
