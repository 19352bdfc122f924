#include "tests/golden/golden_engine.h"

#include "common/base/mem.h"
#include "common/host/host.h"
#include "tests/golden/golden_file.h"

enum { BLOCK = 16, LORA_RANK = 16 };

static _Atomic uint64_t progress;
static const _Atomic bool interrupt;

/* Returns the number of threads of a rank: the cores are divided among the ranks, as `cox up`
 * does. 0 = the default number. */
static uint32_t threads_of_rank(uint32_t n_ranks)
{
    uint32_t n = host_cpus() / n_ranks;
    return n_ranks == 1 ? 0 : n > 0 ? n : 1;
}

enum status golden_engine_open(struct golden_engine *e, const char *model,
                               const struct golden_engine_options *o, struct error *err)
{
    uint32_t n_blocks = o->max_len / BLOCK + 1;
    *e = (struct golden_engine){.max_len = o->max_len};
    TRY(golden_ranks_open(
        &(struct engine_setup){.model = model,
                               .pp = o->pp,
                               .expert_parallel = o->expert_parallel,
                               .quantization = o->quantization,
                               .tp = o->tp,
                               .n_threads = threads_of_rank(o->tp * (o->pp ? o->pp : 1)),
                               .isa_level = (int32_t)o->isa,
                               .activations = o->activations,
                               .device = o->device,
                               .is_eager = o->is_eager,
                               .kv_dtype_set = true,
                               .kv_dtype = o->kv_dtype,
                               .block_tokens = BLOCK,
                               .max_model_len = o->max_len,
                               .pass_rows = GOLDEN_PASS_ROWS,
                               .n_kv_blocks = n_blocks,
                               .max_loras = o->lora != NULL,
                               .max_lora_rank = LORA_RANK,
                               .progress = &progress,
                               .interrupt = &interrupt},
        o->sockets, &e->ranks, err));
    if (o->lora)
        TRY(golden_ranks_load(e->ranks, 1, o->lora, &e->adapter, err));
    e->vocab_size = golden_ranks_engine(e->ranks, 0)->config.vocab_size;
    e->table = mem_array(n_blocks, sizeof *e->table);
    for (uint32_t i = 0; i < n_blocks; i++)
        e->table[i] = n_blocks - 1 - i;
    e->ids = mem_array(GOLDEN_PASS_ROWS, sizeof *e->ids);
    e->positions = mem_array(GOLDEN_PASS_ROWS, sizeof *e->positions);
    e->adapters = mem_array(GOLDEN_PASS_ROWS, sizeof *e->adapters);
    e->rows = mem_array(GOLDEN_PASS_ROWS, sizeof *e->rows);
    return STATUS_OK;
}

void golden_engine_close(struct golden_engine *e)
{
    golden_ranks_close(e->ranks);
    mem_free(e->table);
    mem_free(e->ids);
    mem_free(e->positions);
    mem_free(e->adapters);
    mem_free(e->rows);
    *e = (struct golden_engine){0};
}

bool golden_engine_is_mixture(const struct golden_engine *e)
{
    return golden_ranks_engine(e->ranks, 0)->config.moe.n_experts > 0;
}

void golden_engine_begin(struct golden_engine *e)
{
    e->n_done = 0;
}

/* Passes rows first to n - 1 to the caller, from the last pass, which began at row i_base of the
 * fed ids. */
static void give_logits(struct golden_engine *e, uint32_t first, uint32_t n, uint32_t i_base,
                        golden_row_fn *fn, void *ctx)
{
    struct error err;
    while (first < n) {
        uint32_t rows[RUNNER_LOGITS_ROWS], k = 0;
        float *logits;
        while (k < RUNNER_LOGITS_ROWS && first + k < n) {
            rows[k] = first + k;
            k++;
        }
        if (golden_ranks_logits(e->ranks, rows, k, &logits, &err) != STATUS_OK)
            golden_die("logits: %s", err.text);
        for (uint32_t i = 0; i < k; i++)
            fn(ctx, i_base + rows[i], logits + (size_t)i * e->vocab_size);
        first += k;
    }
}

void golden_engine_feed(struct golden_engine *e, const uint32_t *ids, uint32_t n, uint32_t from,
                        golden_row_fn *fn, void *ctx)
{
    struct error err;
    if (n > e->max_len - e->n_done)
        golden_die("%u more tokens than the %u there is room for", n, e->max_len - e->n_done);
    for (uint32_t base = 0; base < n;) {
        uint32_t n_rows = n - base < GOLDEN_PASS_ROWS ? n - base : GOLDEN_PASS_ROWS;
        struct row_batch b = {
            .n_rows = n_rows, .ids = e->ids, .positions = e->positions, .adapters = e->adapters};
        for (uint32_t i = 0; i < n_rows; i++, e->n_done++) {
            if (ids[base + i] >= e->vocab_size)
                golden_die("id %u is not one of the model's", ids[base + i]);
            e->ids[i] = ids[base + i];
            e->positions[i] = e->n_done;
            e->adapters[i] = e->adapter;
            e->rows[i] = (struct kv_row){.blocks = e->table, .position = e->n_done};
        }
        /* every KV group gets the same rows, also those that the model does not have */
        for (uint32_t g = 0; g < PROGRAM_MAX_KV_GROUPS; g++)
            b.kv_rows[g] = e->rows;
        if (golden_ranks_forward(e->ranks, &b, &err) != STATUS_OK)
            golden_die("forward: %s", err.text);
        give_logits(e, from > base ? from - base : 0, n_rows, base, fn, ctx);
        base += n_rows;
    }
}
