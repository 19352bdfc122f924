/* Prints a plan for equal ranks, as text and as JSON. */
#include <stdio.h>

#include "worker/plan/plan.h"

static double mib(uint64_t n)
{
    return (double)n / (1 << 20);
}

/* ---- text ---- */

/* Returns the number of blocks that every rank has; the head uses no more. */
static uint32_t least(const struct plan *p, uint32_t i_group, bool most)
{
    uint32_t n = UINT32_MAX;
    for (uint32_t i = 0; i < p->n_ranks; i++) {
        const struct plan_rank *r = &p->ranks[i];
        uint32_t own = most ? r->most_blocks[i_group] : r->kv_groups[i_group].n_blocks;
        n = own < n ? own : n;
    }
    return n;
}

/* Returns the group with the largest blocks, which is in the stage with most of the group's
 * layers. */
static const struct kv_group *largest(const struct plan *p, uint32_t i_group)
{
    const struct kv_group *g = &p->ranks[0].kv_groups[i_group];
    for (uint32_t i = 1; i < p->n_ranks; i++)
        if (p->ranks[i].kv_groups[i_group].bytes_per_block > g->bytes_per_block)
            g = &p->ranks[i].kv_groups[i_group];
    return g;
}

static void print_group(const struct plan *p, uint32_t i_group, struct strbuf *out)
{
    const struct kv_group *g = largest(p, i_group);
    uint32_t n = least(p, i_group, false), most = least(p, i_group, true);
    strbuf_printf(out, "KV cache     %s, %llu bytes a token, %llu a block of %u tokens",
                  p->kv_dtype, (unsigned long long)(g->bytes_per_block / g->block_tokens),
                  (unsigned long long)g->bytes_per_block, g->block_tokens);
    if (g->window_tokens > 0)
        strbuf_printf(out, " (layers with a window of %u)", g->window_tokens);
    strbuf_printf(
        out, "\nblocks       %u are used (%llu tokens), and at most %u fit (%llu tokens)\n", n,
        (unsigned long long)n * g->block_tokens, most, (unsigned long long)most * g->block_tokens);
}

void plan_print(const struct plan *p, struct strbuf *out)
{
    strbuf_printf(out, "%s\n", p->model);
    strbuf_printf(out, "model        %s, most weights %s, up to %u tokens a sequence (by %s)\n\n",
                  p->family, p->dtype, p->max_model_len,
                  p->is_gguf ? "the file's header" : "config.json alone");
    strbuf_printf(out, "%s%4s %12s %12s %12s %12s %12s %12s   MiB\n", p->pp > 1 ? "stage " : "",
                  "rank", "weights", "activations", "collectives", "adapters", "KV cache", "total");
    for (uint32_t i = 0; i < p->n_ranks; i++) {
        const struct plan_rank *r = &p->ranks[i];
        if (p->pp > 1)
            strbuf_printf(out, "%5u ", r->stage);
        strbuf_printf(out, "%4u %12.1f %12.1f %12.1f %12.1f %12.1f %12.1f\n", r->rank,
                      mib(r->weights_bytes), mib(r->activation_bytes), mib(r->comm_bytes),
                      mib(r->lora_bytes), mib(r->kv_bytes), mib(r->total_bytes));
    }
    strbuf_append_c(out, "\n");
    for (uint32_t g = 0; g < p->ranks[0].n_kv_groups; g++)
        print_group(p, g, out);
    strbuf_printf(
        out, "memory       %.1f MiB for each rank%s\n", mib(p->memory_bytes),
        p->memory_found
            ? ", from the memory that is free on this machine (--memory-bytes sets another value)"
            : "");
    strbuf_printf(out, "fits         %s\n", plan_fits(p) ? "yes" : "no");
    for (uint32_t i = 0; i < p->n_ranks; i++)
        if (!p->ranks[i].fits)
            strbuf_printf(out, "  rank %u: %s\n", i, p->ranks[i].reason.text);
}

/* ---- JSON ---- */

static void print_rank_json(const struct plan_rank *r, struct strbuf *out)
{
    strbuf_printf(out,
                  "{\"rank\":%u,\"stage\":%u,\"weights_bytes\":%llu,\"activation_bytes\":%llu,"
                  "\"comm_bytes\":%llu,\"lora_bytes\":%llu,\"kv_bytes\":%llu,\"total_bytes\":%llu,"
                  "\"kv_groups\":[",
                  r->rank, r->stage, (unsigned long long)r->weights_bytes,
                  (unsigned long long)r->activation_bytes, (unsigned long long)r->comm_bytes,
                  (unsigned long long)r->lora_bytes, (unsigned long long)r->kv_bytes,
                  (unsigned long long)r->total_bytes);
    for (uint32_t i = 0; i < r->n_kv_groups; i++) {
        const struct kv_group *g = &r->kv_groups[i];
        strbuf_printf(out,
                      "%s{\"window_tokens\":%u,\"block_tokens\":%u,\"bytes_per_token\":%llu,"
                      "\"bytes_per_block\":%llu,\"n_blocks\":%u,\"most_blocks\":%u}",
                      i ? "," : "", g->window_tokens, g->block_tokens,
                      (unsigned long long)(g->bytes_per_block / g->block_tokens),
                      (unsigned long long)g->bytes_per_block, g->n_blocks, r->most_blocks[i]);
    }
    strbuf_printf(out, "],\"fits\":%s", r->fits ? "true" : "false");
    if (!r->fits) {
        strbuf_append_c(out, ",\"reason\":");
        strbuf_append_json(out, str_from(r->reason.text));
    }
    strbuf_append_c(out, "}");
}

/* Prints sums over the ranks, with the names of a plan for GPUs (targets_print.c). */
static void print_sums_json(const struct plan *p, struct strbuf *out)
{
    unsigned long long weights = 0, kv = 0, activations = 0, overhead = 0, total = 0;
    for (uint32_t i = 0; i < p->n_ranks; i++) {
        const struct plan_rank *r = &p->ranks[i];
        weights += r->weights_bytes;
        kv += r->kv_bytes;
        activations += r->activation_bytes;
        overhead += r->comm_bytes + r->lora_bytes;
        total += r->total_bytes;
    }
    strbuf_printf(out,
                  "\"weights_bytes\":%llu,\"kv_bytes_per_token\":%llu,\"kv_bytes_total\":%llu,"
                  "\"activation_bytes\":%llu,\"overhead_bytes\":%llu,\"total_bytes\":%llu,"
                  "\"tp\":%u,\"gpus_idle\":0,\"max_batch\":%llu,",
                  weights, (unsigned long long)plan_token_bytes(p), kv, activations, overhead,
                  total, p->tp, (unsigned long long)plan_max_batch(p));
}

void plan_print_json(const struct plan *p, struct strbuf *out)
{
    strbuf_append_c(out, "{\"model\":");
    strbuf_append_json(out, str_from(p->model));
    strbuf_printf(out,
                  ",\"family\":\"%s\",\"dtype\":\"%s\",\"kv_cache_dtype\":\"%s\","
                  "\"tensor_parallel_size\":%u,\"pipeline_parallel_size\":%u,\"max_model_len\":%u,"
                  "\"block_size\":%u,"
                  "\"threads\":%u,\"memory_bytes\":%llu,\"fits\":%s,",
                  p->family, p->dtype, p->kv_dtype, p->tp, p->pp, p->max_model_len, p->block_tokens,
                  p->n_threads, (unsigned long long)p->memory_bytes,
                  plan_fits(p) ? "true" : "false");
    print_sums_json(p, out);
    strbuf_append_c(out, "\"ranks\":[");
    for (uint32_t i = 0; i < p->n_ranks; i++) {
        strbuf_append_c(out, i ? "," : "");
        print_rank_json(&p->ranks[i], out);
    }
    strbuf_append_c(out, "]}\n");
}
