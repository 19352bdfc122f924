/* Prints a bare shape without a length: its weights and the KV cache of a token. */
#include "worker/plan/shape.h"

/* ANY_GPU_BYTES may have any value, because the printed figures do not depend on it. */
#define ANY_GPU_BYTES (80ull << 30)

typedef unsigned long long ull;

static void print_text(const struct shape *s, uint64_t token, struct strbuf *out)
{
    const struct plan_counts *c = &s->counts;
    const ull batch = (ull)s->options->batch;
    bool is_large = c->n_params >= 1e9;
    strbuf_printf(out,
                  "model        %s, %.2f %s parameters, %u layers of %u, most weights %s\n"
                  "weights      %.2f GB (%.2f GiB)\n"
                  "KV cache     %s, %llu bytes a token",
                  s->family, c->n_params / (is_large ? 1e9 : 1e6), is_large ? "billion" : "million",
                  c->n_layers, c->hidden, s->dtype, (double)s->weights_bytes / 1e9,
                  (double)s->weights_bytes / (1 << 30), s->kv_dtype, (ull)token);
    if (batch > 1)
        strbuf_printf(out, "; %llu bytes for a token of each of %llu sequences", token * batch,
                      batch);
    strbuf_append_c(out, "\n--max-model-len N also gives the KV cache of whole sequences, and the "
                         "GPUs that hold them\n");
}

static void print_json(const struct shape *s, uint64_t token, struct strbuf *out)
{
    strbuf_printf(out,
                  "{\"model\":null,\"family\":\"%s\",\"params\":%.0f,\"dtype\":\"%s\","
                  "\"kv_cache_dtype\":\"%s\",\"batch\":%lld,\"max_model_len\":null,"
                  "\"weights_bytes\":%llu,\"kv_bytes_per_token\":%llu}\n",
                  s->family, s->counts.n_params, s->dtype, s->kv_dtype,
                  (long long)s->options->batch, (ull)s->weights_bytes, (ull)token);
}

enum status shape_print(const struct shape *s, struct strbuf *out, struct error *err)
{
    struct shape_rank whole;
    uint64_t token = 0;
    TRY(shape_rank_of(s, 1, ANY_GPU_BYTES, &whole, err));
    for (uint32_t g = 0; g < whole.n_kv_groups; g++)
        token += whole.kv[g].bytes_per_token;
    if (s->options->json)
        print_json(s, token, out);
    else
        print_text(s, token, out);
    return STATUS_OK;
}
