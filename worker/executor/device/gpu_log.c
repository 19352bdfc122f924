#include "worker/executor/device/gpu_log.h"

#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "worker/collectives/gpu.h"
#include "worker/draft/model.h"

static double gib(uint64_t n)
{
    return (double)n / (1 << 30);
}

const char *gpu_log_number(uint64_t n, char out[32])
{
    char digits[24];
    int len = snprintf(digits, sizeof digits, "%llu", (unsigned long long)n), at = 0;
    for (int i = 0; i < len; i++) {
        if (i > 0 && (len - i) % 3 == 0)
            out[at++] = ',';
        out[at++] = digits[i];
    }
    out[at] = '\0';
    return out;
}

/* Returns the number of blocks of a sequence of full length. A KV group with a window holds the
 * window and one more block. */
static uint64_t blocks_of_sequence(const struct engine *e, const struct kv_group *g)
{
    uint64_t tokens = e->max_model_len, window = g->window_tokens + (uint64_t)g->block_tokens;
    if (g->kind == KV_WINDOW && window < tokens)
        tokens = window;
    return (tokens + g->block_tokens - 1) / g->block_tokens;
}

double gpu_log_concurrency(const struct engine *e)
{
    double least = 0;
    for (uint32_t i = 0; i < e->program->n_kv_groups; i++) {
        const struct kv_group *g = &e->kv_groups[i];
        double n = (double)g->n_blocks / (double)blocks_of_sequence(e, g);
        least = i == 0 || n < least ? n : least;
    }
    return least;
}

static uint64_t draft_bytes(const struct executor_model *x)
{
    const struct engine *d = x->draft_model ? draft_model_engine(x->draft_model) : NULL;
    return d ? d->weights_bytes + d->activation_bytes + d->kv_bytes : 0;
}

/* Logs how the memory is used. The memory left now is the reserve, plus the memory that a KV
 * cache of a fixed size leaves unused. The rest belongs to libraries and to other processes that
 * used the GPU before. */
static void log_memory(const struct executor_model *x, uint64_t total)
{
    const struct engine *e = x->engine;
    double part = x->found.utilization * gib(total);
    uint64_t activations =
        e->activation_bytes + (x->device_sampler ? x->device_sampler->n_bytes : 0);
    uint64_t left = e->device->ops->memory.available_bytes(e->device);
    /* NCCL's memory is allocated later, when the ranks join */
    uint64_t nccl = collectives_gpu_bytes(e->tp, e->pp);
    left -= nccl < left ? nccl : left;
    uint64_t reserve = e->reserved_bytes < left ? e->reserved_bytes : left;
    uint64_t model = e->weights_bytes + activations + e->comm_bytes + e->lora_bytes + e->kv_bytes +
                     draft_bytes(x);
    double rest = part - gib(model + left);
    log_info("gpu_memory",
             "message=\"this worker can use total_gpu_memory (%.2fGiB) x gpu_memory_utilization "
             "(%.2f) = %.2fGiB; model weights take %.2fGiB; activations take %.2fGiB; adapters "
             "take %.2fGiB; a draft model takes %.2fGiB; KV Cache takes %.2fGiB; collectives will "
             "take %.2fGiB; non-model memory takes %.2fGiB; reserve %.2fGiB; unused %.2fGiB\"",
             gib(total), x->found.utilization, part, gib(e->weights_bytes), gib(activations),
             gib(e->lora_bytes), gib(draft_bytes(x)), gib(e->kv_bytes), gib(e->comm_bytes),
             rest > 0 ? rest : 0, gib(reserve), gib(left - reserve));
    char text[512];
    const struct gpu_log_budget b = {gib(total), x->found.utilization, gib(e->weights_bytes),
                                     gib(activations), gib(e->kv_bytes)};
    log_info("gpu_memory_profile", "message=\"%s\"", gpu_log_profile(&b, text));
}

const char *gpu_log_profile(const struct gpu_log_budget *b, char out[512])
{
    double budget = b->total * b->utilization;
    double rest = budget - b->weights - b->activations - b->kv;
    snprintf(out, 512,
             "the current vLLM instance can use total_gpu_memory (%.2fGiB) x "
             "gpu_memory_utilization (%.2f) = %.2fGiB; model weights take %.2fGiB; "
             "non_torch_memory takes %.2fGiB; PyTorch activation peak memory takes %.2fGiB; the "
             "rest of the memory reserved for KV Cache is %.2fGiB",
             b->total, b->utilization, budget, b->weights, rest > 0 ? rest : 0, b->activations,
             b->kv);
    return out;
}

static void log_kv(const struct engine *e)
{
    char tokens[32], length[32];
    double concurrency = gpu_log_concurrency(e);
    uint64_t n = (uint64_t)(concurrency * e->max_model_len);
    log_info("gpu_kv_cache",
             "message=\"Available KV cache memory: %.2f GiB, GPU KV cache size: %s tokens, Maximum "
             "concurrency for %s tokens per request: %.2fx\"",
             gib(e->kv_bytes), gpu_log_number(n, tokens), gpu_log_number(e->max_model_len, length),
             concurrency);
}

void gpu_log_start(const struct executor_model *x, uint64_t elapsed_ns)
{
    const struct engine *e = x->engine;
    log_info("gpu_weights",
             "message=\"Loading weights took %.2f seconds, Model loading took %.2f GiB memory and "
             "%.6f seconds\"",
             seconds_of_ns(e->load_ns), gib(e->weights_bytes),
             seconds_of_ns(e->measure_ns + e->load_ns));
    log_memory(x, x->device->memory_bytes(x));
    log_kv(e);
    /* The message uses the words of vLLM's log, because its users' scripts search for them.
     * Nothing is profiled or warmed up here. */
    log_info("gpu_start",
             "device_seconds=%.2f files_seconds=%.2f kv_seconds=%.2f weights_seconds=%.2f "
             "message=\"init engine (profile, create kv cache, warmup model) took %.2f seconds\"",
             seconds_of_ns(x->found.open_ns), seconds_of_ns(e->measure_ns), seconds_of_ns(e->kv_ns),
             seconds_of_ns(e->load_ns), seconds_of_ns(x->found.open_ns + elapsed_ns));
}
