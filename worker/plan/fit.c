#include "worker/plan/fit.h"

#include "worker/kv/store.h"

uint64_t fit_sequence_bytes(const struct shape_rank *r, uint32_t n_tokens, uint32_t block_tokens)
{
    uint64_t sum = 0;
    for (uint32_t g = 0; g < r->n_kv_groups; g++) {
        uint64_t held = kv_store_sequence_tokens(r->kv[g].window_tokens, n_tokens);
        uint64_t blocks = (held + block_tokens - 1) / block_tokens;
        sum += blocks * block_tokens * r->kv[g].bytes_per_token;
    }
    return sum;
}

/* Returns the bytes of a batch, at most 2^63. A single sequence takes less than that: 2^10
 * layers of keys and values for 2^30 tokens, each with at most 2^20 numbers of 4 bytes (shape.c,
 * check_heads). */
uint64_t fit_batch_bytes(const struct shape_rank *r, uint64_t batch, uint32_t n_tokens,
                         uint32_t block_tokens)
{
    const uint64_t most = UINT64_MAX / 2;
    uint64_t product;
    if (__builtin_mul_overflow(fit_sequence_bytes(r, n_tokens, block_tokens), batch, &product))
        return most;
    return product < most ? product : most;
}

/* Returns the longest context that fits, in whole blocks, at most the model's own length. */
static uint32_t longest(const struct shape_rank *r, const struct fit_ask *ask, uint64_t room)
{
    uint32_t low = 0, high = (ask->most_model_len + ask->block_tokens - 1) / ask->block_tokens;
    while (low < high) { /* invariant: `low` fits, lengths above `high` do not fit */
        uint32_t mid = low + (high - low + 1) / 2;
        if (fit_batch_bytes(r, ask->batch, mid * ask->block_tokens, ask->block_tokens) <= room)
            low = mid;
        else
            high = mid - 1;
    }
    uint64_t n = (uint64_t)low * ask->block_tokens;
    return n < ask->most_model_len ? (uint32_t)n : ask->most_model_len;
}

void fit_rank(const struct shape_rank *r, const struct fit_ask *ask, struct fit *out)
{
    uint64_t fixed = r->weights_bytes + r->activation_bytes + r->overhead_bytes;
    uint64_t one = fit_sequence_bytes(r, ask->max_model_len, ask->block_tokens);
    *out = (struct fit){.budget_bytes = (uint64_t)(ask->utilization * (double)ask->memory_bytes),
                        .kv_bytes =
                            fit_batch_bytes(r, ask->batch, ask->max_model_len, ask->block_tokens)};
    out->total_bytes = fixed + out->kv_bytes;
    if (fixed > out->budget_bytes)
        return;
    out->kv_room_bytes = out->budget_bytes - fixed;
    if (one == 0) { /* there is no KV cache, so any batch fits */
        out->max_batch = ask->batch;
        out->kv_tokens = ask->batch * ask->max_model_len;
    } else {
        out->max_batch = out->kv_room_bytes / one;
        out->kv_tokens =
            (uint64_t)((double)out->kv_room_bytes / (double)one * (double)ask->max_model_len + 0.5);
    }
    out->max_context = longest(r, ask, out->kv_room_bytes);
    out->fits = out->kv_bytes <= out->kv_room_bytes;
}
