#include "worker/executor/step/samplers.h"

#include "common/base/mem.h"
#include "worker/grammar/grammars.h"

/* Returns the number of samplers. At most RUNNER_LOGITS_ROWS rows are sampled at once. */
static uint32_t n_samplers(uint32_t n_threads)
{
    return n_threads < RUNNER_LOGITS_ROWS ? n_threads : RUNNER_LOGITS_ROWS;
}

enum status executor_samplers_open(struct executor_model *x, struct error *err)
{
    uint32_t n = x->engine->n_threads, vocab_size = x->engine->config.vocab_size;
    x->host.n_samplers = n_samplers(n);
    x->host.samplings = mem_array(RUNNER_LOGITS_ROWS, sizeof *x->host.samplings);
    x->host.samplers = mem_array(x->host.n_samplers, sizeof(struct sampler *));
    x->host.n_mask_words = (vocab_size + 31) / 32;
    x->host.masks = mem_array(RUNNER_LOGITS_ROWS, x->host.n_mask_words * sizeof *x->host.masks);
    x->host.grammars = grammars_new(x->host.compiler, vocab_size, &x->base.progress);
    for (uint32_t i = 0; i < x->host.n_samplers; i++) {
        x->host.samplers[i] = sampler_new(vocab_size);
        if (x->host.samplers[i])
            continue;
        enum status s =
            error_set(err, STATUS_NO_MEMORY,
                      "not enough memory for %u samplers of %llu bytes each: lower --max-num-seqs",
                      x->host.n_samplers, (unsigned long long)sampler_bytes(vocab_size));
        executor_samplers_close(x);
        return s;
    }
    return STATUS_OK;
}

void executor_samplers_close(struct executor_model *x)
{
    for (uint32_t i = 0; x->host.samplers && i < x->host.n_samplers; i++)
        sampler_free(x->host.samplers[i]);
    mem_free(x->host.samplers);
    mem_free(x->host.samplings);
    mem_free(x->host.masks);
    grammars_free(x->host.grammars);
    x->host.masks = NULL;
    x->host.grammars = NULL;
    x->host.samplers = NULL;
    x->host.samplings = NULL;
    x->host.n_samplers = 0;
}

uint64_t executor_samplers_measure(uint32_t n_threads, uint32_t vocab_size)
{
    return n_samplers(n_threads) * sampler_bytes(vocab_size) + grammars_bytes(vocab_size);
}

uint64_t executor_samplers_bytes(const struct executor_model *x)
{
    return x->host.n_samplers == 0
               ? 0
               : executor_samplers_measure(x->engine->n_threads, x->engine->config.vocab_size);
}
