/* Prints a model on its targets, as text and as JSON. plan_main.c calls it with the evaluated
 * targets; the text goes to a string buffer. Nothing is computed here except sums.
 * Invariants: the names in the JSON are documented (docs/how-to/plan.md) and are the same as in
 * plan_print.c. Byte counts are per GPU in a degree, and over all GPUs in the summary. */
#include <stdio.h>
#include <string.h>

#include "worker/plan/targets.h"

typedef unsigned long long ull;

static double gib(uint64_t n)
{
    return (double)n / (1 << 30);
}

/* ---- text ---- */

static void print_bytes(struct strbuf *out, uint64_t n)
{
    strbuf_printf(out, "%.2f GB (%.2f GiB)", (double)n / 1e9, gib(n));
}

static void print_model(const struct targets *t, struct strbuf *out)
{
    const struct shape *s = t->shape;
    const struct plan_counts *c = &s->counts;
    if (s->model)
        strbuf_printf(out, "%s\n", s->model);
    bool is_large = c->n_params >= 1e9;
    strbuf_printf(out, "model        %s, %.2f %s parameters, %u layers of %u, most weights %s\n",
                  s->family, c->n_params / (is_large ? 1e9 : 1e6), is_large ? "billion" : "million",
                  c->n_layers, c->hidden, s->dtype);
    strbuf_append_c(out, "weights      ");
    print_bytes(out, s->weights_bytes);
    uint64_t token = 0;
    for (uint32_t g = 0; g < t->whole.n_kv_groups; g++)
        token += t->whole.kv[g].bytes_per_token;
    strbuf_printf(out, "\nKV cache     %s, %llu bytes a token; ", s->kv_dtype, (ull)token);
    for (uint32_t g = 0; g < t->whole.n_kv_groups; g++)
        if (t->whole.kv[g].window_tokens > 0)
            strbuf_printf(out, "%llu of them for layers with a window of %u; ",
                          (ull)t->whole.kv[g].bytes_per_token, t->whole.kv[g].window_tokens);
    strbuf_printf(out, "%llu sequence%s of %u: ", (ull)t->batch, t->batch == 1 ? "" : "s",
                  s->max_model_len);
    print_bytes(out, t->kv_bytes);
    strbuf_append_c(out, "\ntogether     ");
    print_bytes(out, s->weights_bytes + t->kv_bytes);
    strbuf_append_c(out, ", and on each GPU activations and overhead\n");
}

static const char *mark(const struct target *x, const struct target_degree *d)
{
    return x->fits && d == &x->degrees[x->i_best] ? "*" : " ";
}

/* Returns true for a degree that is printed. When all known GPUs are listed, only the best
 * number of ranks of each GPU is shown. */
static bool is_shown(const struct targets *t, const struct target *x, uint32_t i)
{
    return !t->is_everything || i == x->i_best;
}

static void print_sizes(const struct targets *t, const struct target *x, struct strbuf *out)
{
    for (uint32_t i = 0; i < x->n_degrees; i++) {
        const struct target_degree *d = &x->degrees[i];
        if (!is_shown(t, x, i))
            continue;
        strbuf_printf(out, "%-22.22s %s%3u ", x->at.name, mark(x, d), d->tp);
        if (!d->is_possible) {
            strbuf_printf(out, " %s\n", d->reason.text);
            continue;
        }
        strbuf_printf(out, "%8.2f %7.2f %8.2f %8.2f %8.2f %7.2f  %-4s %9llu %11u\n",
                      gib(d->rank.weights_bytes), gib(d->rank.activation_bytes),
                      gib(d->rank.overhead_bytes), gib(d->fit.kv_bytes), gib(d->fit.total_bytes),
                      gib(d->fit.budget_bytes), d->fit.fits ? "yes" : "no", (ull)d->fit.max_batch,
                      d->fit.max_context);
    }
}

static double tokens_per_s(uint64_t n, const struct roofline *r)
{
    return r->step_s > 0 ? (double)n / r->step_s : 0;
}

static void print_rates(const struct targets *t, const struct target *x, struct strbuf *out)
{
    for (uint32_t i = 0; i < x->n_degrees; i++) {
        const struct target_degree *d = &x->degrees[i];
        if (!is_shown(t, x, i) || !d->has_rates || d->fit.max_batch == 0)
            continue;
        strbuf_printf(out, "%-22.22s %s%3u %9.1f %-8s %9.2f %9.0f %-8s %9.0f %9.1f\n", x->at.name,
                      mark(x, d), d->tp, tokens_per_s(t->batch, &d->decode),
                      roofline_bound_names[d->decode.bound], d->decode.step_s * 1e3,
                      tokens_per_s(d->fit.max_batch, &d->decode_most),
                      roofline_bound_names[d->decode_most.bound],
                      tokens_per_s(t->context, &d->prefill), d->prefill.step_s * 1e3);
    }
}

static bool has_rates(const struct targets *t)
{
    for (size_t i = 0; i < t->n; i++)
        for (uint32_t k = 0; k < t->list[i].n_degrees; k++)
            if (t->list[i].degrees[k].has_rates && t->list[i].degrees[k].fit.max_batch > 0)
                return true;
    return false;
}

static void print_notes(const struct targets *t, struct strbuf *out)
{
    if (t->shape->activations_estimated && t->shape->options->activation_bytes < 0)
        strbuf_append_c(out, t->shape->is_counted
                                 ? "calculated without CUDA: activations are estimated, and "
                                   "quantised weights have their size on a CPU\n"
                                 : "activations are estimated\n");
    for (size_t i = 0; i < t->n; i++)
        if (!t->list[i].is_supported)
            strbuf_printf(out,
                          "%s: there are no kernels for this GPU (compute capability %u.%u; at "
                          "least %u.%u is needed): its figures are only calculated\n",
                          t->list[i].at.name, t->list[i].at.gpu->capability / 10,
                          t->list[i].at.gpu->capability % 10, GPUS_LEAST_CAPABILITY / 10,
                          GPUS_LEAST_CAPABILITY % 10);
}

static void print_choice(const struct targets *t, struct strbuf *out)
{
    const struct target *x = &t->list[t->i_best];
    if (!t->fits) {
        strbuf_append_c(out,
                        "fits         no: take more or larger GPUs, fewer or shorter sequences "
                        "(--batch, --max-model-len), or a smaller --kv-cache-dtype\n");
        return;
    }
    uint32_t tp = x->degrees[x->i_best].tp, idle = targets_idle(x);
    strbuf_printf(out, "fits         %s: %s with --tp %u",
                  t->is_supported ? "yes" : "by its size alone", x->at.name, tp);
    if (idle > 0)
        strbuf_printf(out, ", which leaves %u of its %u GPUs idle", idle, x->at.n_gpus);
    if (idle >= tp)
        strbuf_printf(out, " (--dp %u has copies on %s)", x->at.n_gpus / tp,
                      x->at.n_gpus % tp ? "most of them" : "all of them");
    strbuf_append_c(out, "\n");
}

void targets_print(const struct targets *t, struct strbuf *out)
{
    print_model(t, out);
    strbuf_printf(
        out,
        "\nGiB of each GPU; * is the fewest that it fits on; %g of the memory is the budget\n"
        "%-22s %4s %8s %7s %8s %8s %8s %7s  %-4s %9s %11s\n",
        t->shape->options->gpu_memory_utilization, "", "TP", "weights", "activ.", "overhead",
        "KV cache", "total", "budget", "fits", "max batch", "max context");
    for (size_t i = 0; i < t->n; i++)
        print_sizes(t, &t->list[i], out);
    if (has_rates(t)) {
        strbuf_printf(
            out,
            "\ntokens/s at most (a roofline: docs/how-to/plan.md), where sequences have %u "
            "tokens\n%-22s %4s %9s %-8s %9s %9s %-8s %9s %9s\n",
            t->context, "", "TP", "decode", "bound by", "step ms", "max batch", "bound by",
            "prefill", "ms");
        for (size_t i = 0; i < t->n; i++)
            print_rates(t, &t->list[i], out);
    }
    strbuf_append_c(out, "\n");
    print_notes(t, out);
    print_choice(t, out);
}

/* ---- JSON ---- */

static void print_rates_json(const struct targets *t, const struct target_degree *d,
                             struct strbuf *out)
{
    strbuf_printf(out,
                  ",\"decode_tokens_per_s\":%.1f,\"decode_step_ms\":%.3f,\"decode_bound\":\"%s\","
                  "\"prefill_tokens_per_s\":%.1f,\"prefill_bound\":\"%s\"",
                  tokens_per_s(t->batch, &d->decode), d->decode.step_s * 1e3,
                  roofline_bound_names[d->decode.bound], tokens_per_s(t->context, &d->prefill),
                  roofline_bound_names[d->prefill.bound]);
    if (d->fit.max_batch > 0)
        strbuf_printf(out,
                      ",\"max_batch_decode_tokens_per_s\":%.1f,\"max_batch_decode_bound\":\"%s\"",
                      tokens_per_s(d->fit.max_batch, &d->decode_most),
                      roofline_bound_names[d->decode_most.bound]);
}

/* Prints one number of ranks; bytes are per GPU. */
static void print_degree_json(const struct targets *t, const struct target_degree *d,
                              struct strbuf *out)
{
    if (!d->is_possible) {
        strbuf_printf(out, "{\"tp\":%u,\"fits\":false,\"reason\":", d->tp);
        strbuf_append_json(out, str_from(d->reason.text));
        strbuf_append_c(out, "}");
        return;
    }
    strbuf_printf(out,
                  "{\"tp\":%u,\"fits\":%s,\"weights_bytes\":%llu,\"activation_bytes\":%llu,"
                  "\"overhead_bytes\":%llu,\"kv_bytes\":%llu,\"total_bytes\":%llu,"
                  "\"budget_bytes\":%llu,\"kv_room_bytes\":%llu,\"kv_tokens\":%llu,"
                  "\"max_batch\":%llu,\"max_context\":%u",
                  d->tp, d->fit.fits ? "true" : "false", (ull)d->rank.weights_bytes,
                  (ull)d->rank.activation_bytes, (ull)d->rank.overhead_bytes, (ull)d->fit.kv_bytes,
                  (ull)d->fit.total_bytes, (ull)d->fit.budget_bytes, (ull)d->fit.kv_room_bytes,
                  (ull)d->fit.kv_tokens, (ull)d->fit.max_batch, d->fit.max_context);
    if (d->has_rates)
        print_rates_json(t, d, out);
    strbuf_append_c(out, "}");
}

static void print_target_json(const struct targets *t, const struct target *x, struct strbuf *out)
{
    strbuf_append_c(out, "{\"name\":");
    strbuf_append_json(out, str_from(x->at.name));
    strbuf_printf(out,
                  ",\"gpu\":\"%s\",\"gpus\":%u,\"gpu_memory_bytes\":%llu,\"supported\":%s,"
                  "\"fits\":%s,\"tp\":%u,\"gpus_idle\":%u,\"degrees\":[",
                  x->at.gpu->name, x->at.n_gpus, (ull)x->memory_bytes,
                  x->is_supported ? "true" : "false", x->fits ? "true" : "false",
                  x->degrees[x->i_best].tp, targets_idle(x));
    for (uint32_t i = 0; i < x->n_degrees; i++) {
        strbuf_append_c(out, i ? "," : "");
        print_degree_json(t, &x->degrees[i], out);
    }
    strbuf_append_c(out, "]}");
}

/* Prints sums over the GPUs of the best target. Weights and KV cache count as one whole copy,
 * activations and overhead once per GPU. */
static void print_whole_json(const struct targets *t, struct strbuf *out)
{
    const struct target *x = &t->list[t->i_best];
    const struct target_degree *d = &x->degrees[x->i_best];
    uint64_t token = 0, activations = d->tp * d->rank.activation_bytes,
             overhead = d->tp * d->rank.overhead_bytes;
    for (uint32_t g = 0; g < t->whole.n_kv_groups; g++)
        token += t->whole.kv[g].bytes_per_token;
    uint64_t total = t->shape->weights_bytes + t->kv_bytes + activations + overhead;
    strbuf_printf(out,
                  ",\"weights_bytes\":%llu,\"kv_bytes_per_token\":%llu,\"kv_bytes_total\":%llu,"
                  "\"activation_bytes\":%llu,\"overhead_bytes\":%llu,\"total_bytes\":%llu",
                  (ull)t->shape->weights_bytes, (ull)token, (ull)t->kv_bytes, (ull)activations,
                  (ull)overhead, (ull)total);
    strbuf_append_c(out, ",\"target\":");
    strbuf_append_json(out, str_from(x->at.name));
    strbuf_printf(out,
                  ",\"tp\":%u,\"gpus_idle\":%u,\"fits\":%s,\"supported\":%s,\"max_batch\":%llu,"
                  "\"max_context\":%u",
                  d->tp, targets_idle(x), t->fits ? "true" : "false",
                  t->is_supported ? "true" : "false", (ull)d->fit.max_batch, d->fit.max_context);
}

void targets_print_json(const struct targets *t, struct strbuf *out)
{
    const struct shape *s = t->shape;
    strbuf_append_c(out, "{\"model\":");
    if (s->model)
        strbuf_append_json(out, str_from(s->model));
    else
        strbuf_append_c(out, "null");
    strbuf_printf(out,
                  ",\"family\":\"%s\",\"params\":%.0f,\"dtype\":\"%s\",\"kv_cache_dtype\":\"%s\","
                  "\"batch\":%llu,\"max_model_len\":%u,\"context\":%u,\"block_size\":%lld,"
                  "\"activations\":\"%s\"",
                  s->family, s->counts.n_params, s->dtype, s->kv_dtype, (ull)t->batch,
                  s->max_model_len, t->context, (long long)s->options->worker.block_size,
                  s->options->activation_bytes >= 0 ? "given"
                  : s->activations_estimated        ? "estimated"
                                                    : "counted");
    print_whole_json(t, out);
    strbuf_append_c(out, ",\"targets\":[");
    for (size_t i = 0; i < t->n; i++) {
        strbuf_append_c(out, i ? "," : "");
        print_target_json(t, &t->list[i], out);
    }
    strbuf_append_c(out, "]}\n");
}
