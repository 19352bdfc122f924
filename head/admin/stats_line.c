#include "head/admin/stats_line.h"

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/str.h"

void stats_line_init(struct stats_line *l, enum stats_format format, double interval_s,
                     uint64_t now_ns)
{
    double own = format == STATS_VLLM0 ? 5 : 10;
    *l = (struct stats_line){.format = format, .at_ns = now_ns};
    l->interval_ns = (uint64_t)((interval_s < 0 ? own : interval_s) * (double)NS_PER_S);
}

bool stats_line_is_due(const struct stats_line *l, uint64_t now_ns)
{
    return l->interval_ns > 0 && now_ns - l->at_ns >= l->interval_ns;
}

static double seconds_since(const struct stats_line *l, uint64_t now_ns)
{
    return now_ns > l->at_ns ? (double)(now_ns - l->at_ns) / (double)NS_PER_S : 1;
}

static double per_second(uint64_t before, uint64_t now, double s)
{
    return (double)(now - before) / s;
}

static double kv_usage(const struct head_stats *s)
{
    return s->n_blocks ? (double)s->n_blocks_used / (double)s->n_blocks : 0;
}

static bool is_busy(const struct stats_line *l, const struct head_stats *s)
{
    return s->running > 0 || s->waiting > 0 || s->n_prompt_tokens > l->last.n_prompt_tokens ||
           s->n_generated_tokens > l->last.n_generated_tokens;
}

void stats_line_text(const struct stats_line *l, const struct head_stats *s, uint64_t now_ns,
                     struct strbuf *out)
{
    double t = seconds_since(l, now_ns);
    if (!is_busy(l, s))
        return;
    if (l->format == STATS_VLLM && s->n_replicas_ready > 1)
        strbuf_printf(out, "%u Engines Aggregated: ", s->n_replicas_ready);
    else if (l->format == STATS_VLLM)
        strbuf_append_c(out, "Engine 000: ");
    strbuf_printf(out,
                  "Avg prompt throughput: %.1f tokens/s, Avg generation throughput: %.1f tokens/s, "
                  "Running: %u reqs, ",
                  per_second(l->last.n_prompt_tokens, s->n_prompt_tokens, t),
                  per_second(l->last.n_generated_tokens, s->n_generated_tokens, t), s->running);
    /* The count of swapped requests is always 0, because Coxswain never swaps requests to the
     * CPU. */
    if (l->format == STATS_VLLM0)
        strbuf_printf(out,
                      "Swapped: 0 reqs, Pending: %u reqs, GPU KV cache usage: %.1f%%, CPU KV cache "
                      "usage: 0.0%%.",
                      s->waiting, 100 * kv_usage(s));
    else
        strbuf_printf(out,
                      "Waiting: %u reqs, GPU KV cache usage: %.1f%%, Prefix cache hit rate: %.1f%%",
                      s->waiting, 100 * kv_usage(s), 100 * l->hit_rate);
}

void stats_line_speculation(const struct stats_line *l, const struct head_stats *s, uint64_t now_ns,
                            struct strbuf *out)
{
    double t = seconds_since(l, now_ns);
    uint64_t drafts = s->n_draft_steps - l->last.n_draft_steps;
    uint64_t drafted = s->n_drafted - l->last.n_drafted;
    uint64_t accepted = s->n_accepted - l->last.n_accepted;
    if (l->format != STATS_VLLM || drafts == 0)
        return;
    strbuf_printf(out,
                  "SpecDecoding metrics: Mean acceptance length: %.2f, Accepted throughput: %.2f "
                  "tokens/s, Drafted throughput: %.2f tokens/s, Accepted: %llu tokens, Drafted: "
                  "%llu tokens, Avg Draft acceptance rate: %.1f%%",
                  1 + (double)accepted / (double)drafts, (double)accepted / t, (double)drafted / t,
                  (unsigned long long)accepted, (unsigned long long)drafted,
                  drafted ? 100 * (double)accepted / (double)drafted : 0);
}

static void log_text(const struct stats_line *l, const struct head_stats *s, uint64_t now_ns,
                     const struct strbuf *text)
{
    double t = seconds_since(l, now_ns);
    if (!log_is_json()) {
        log_info("stats", "text=%s", log_quote(text->ptr));
        return;
    }
    log_info("stats",
             "text=%s prompt_tokens_per_s=%.1f generation_tokens_per_s=%.1f running=%u waiting=%u "
             "kv_usage=%.4f prefix_hit_rate=%.4f",
             log_quote(text->ptr), per_second(l->last.n_prompt_tokens, s->n_prompt_tokens, t),
             per_second(l->last.n_generated_tokens, s->n_generated_tokens, t), s->running,
             s->waiting, kv_usage(s), l->hit_rate);
}

static void log_speculation(const struct stats_line *l, const struct head_stats *s,
                            const struct strbuf *text)
{
    if (!log_is_json()) {
        log_info("stats_speculation", "text=%s", log_quote(text->ptr));
        return;
    }
    log_info("stats_speculation", "text=%s drafts=%llu draft_tokens=%llu accepted_tokens=%llu",
             log_quote(text->ptr), (unsigned long long)(s->n_draft_steps - l->last.n_draft_steps),
             (unsigned long long)(s->n_drafted - l->last.n_drafted),
             (unsigned long long)(s->n_accepted - l->last.n_accepted));
}

void stats_line_log(struct stats_line *l, const struct head_stats *s, uint64_t now_ns)
{
    struct strbuf text;
    uint64_t asked = s->prefix_query_tokens - l->last.prefix_query_tokens;
    if (asked > 0)
        l->hit_rate = (double)(s->prefix_hit_tokens - l->last.prefix_hit_tokens) / (double)asked;
    strbuf_init(&text, 0);
    stats_line_text(l, s, now_ns, &text);
    if (text.len > 0)
        log_text(l, s, now_ns, &text);
    strbuf_reset(&text);
    stats_line_speculation(l, s, now_ns, &text);
    if (text.len > 0)
        log_speculation(l, s, &text);
    strbuf_fini(&text);
    l->last = *s;
    l->at_ns = now_ns;
}
