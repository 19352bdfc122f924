/* /v1/embeddings: prompts as vectors. Each prompt is submitted as a pooling request; what comes is
 * one vector and no token. Bodies and answers are OpenAI's, and vLLM's beyond them. */
#include <math.h>
#include <sodium.h>

#include "common/base/mem.h"
#include "gateway/dialect.h"
#include "gateway/openai_completions.h"
#include "gateway/openai_json.h"

static bool read_input(const struct prepare_model *m, json_t *owned_body, struct prepared *out)
{
    struct params *p = &out->params;
    if (!params_init(p, API_EMBEDDINGS, owned_body, &m->policy, &out->error))
        return false;
    if (m->pooling == POOLING_NONE)
        return api_error_set(&out->error, 400, "model",
                             "This model's files ask for a pooling that is none of last and mean: "
                             "it gives no embeddings here.");
    if (m->n_dimensions && p->dimensions > m->n_dimensions)
        return api_error_set(&out->error, 400, "dimensions",
                             "dimensions must be in [1, %u], as many as this model's vectors have, "
                             "got %u.",
                             m->n_dimensions, p->dimensions);
    p->sampling.pooling = m->pooling;
    p->sampling.pooling_normalise = p->use_activation;
    return openai_prompts_read(p->prompt, "input", m->policy.vocab_size, &out->prompts,
                               &out->error);
}

/* Of the first n numbers: to length 1 again, where fewer are given than were. */
static double scale_of(const struct params *p, const struct generation *g, uint32_t n)
{
    double sum = 0;
    if (n == g->n_vector || !p->use_activation)
        return 1;
    for (uint32_t i = 0; i < n; i++)
        sum += (double)g->vector[i] * (double)g->vector[i];
    return sum > 0 ? 1 / sqrt(sum) : 1;
}

static void append_numbers(struct strbuf *out, const float *v, uint32_t n)
{
    strbuf_append_c(out, "[");
    for (uint32_t i = 0; i < n; i++)
        strbuf_printf(out, i ? ",%.9g" : "%.9g", (double)v[i]);
    strbuf_append_c(out, "]");
}

/* Little-endian float32, as every machine here has them. */
static void append_base64(struct strbuf *out, const float *v, uint32_t n)
{
    size_t size = sodium_base64_encoded_len(n * sizeof *v, sodium_base64_VARIANT_ORIGINAL);
    char *text = mem_array(size, 1);
    sodium_bin2base64(text, size, (const unsigned char *)v, n * sizeof *v,
                      sodium_base64_VARIANT_ORIGINAL);
    strbuf_printf(out, "\"");
    strbuf_append(out, text, size - 1);
    strbuf_append_c(out, "\"");
    mem_free(text);
}

static void append_vector(struct strbuf *out, const struct params *p, const struct generation *g)
{
    uint32_t n = p->dimensions && p->dimensions < g->n_vector ? p->dimensions : g->n_vector;
    double scale = scale_of(p, g, n);
    float *v = mem_array(n ? n : 1, sizeof *v);
    for (uint32_t i = 0; i < n; i++) {
        double x = (double)g->vector[i] * scale;
        v[i] = (float)(isfinite(x) ? x : 0); /* JSON has no others */
    }
    if (p->embed_base64)
        append_base64(out, v, n);
    else
        append_numbers(out, v, n);
    mem_free(v);
}

static void write_whole(struct strbuf *out, const struct answer_shape *a,
                        const struct answer_delta *d, uint32_t n, const struct answer_usage *u)
{
    strbuf_printf(out, "{\"id\":\"%s\",\"object\":\"list\",\"created\":%llu,\"model\":", a->id,
                  (unsigned long long)a->created_s);
    strbuf_append_json(out, a->model);
    strbuf_append_c(out, ",\"data\":[");
    for (uint32_t i = 0; i < n; i++) {
        strbuf_printf(out, "%s{\"index\":%u,\"object\":\"embedding\",\"embedding\":", i ? "," : "",
                      i);
        append_vector(out, a->params, d[i].g);
        strbuf_append_c(out, "}");
    }
    strbuf_append_c(out, "],\"usage\":");
    openai_usage(out, a, u);
    strbuf_append_c(out, "}");
}

const struct dialect dialect_embeddings = {
    .name = "embeddings",
    .id_prefix = "embd-",
    .prompt_field = "input",
    .kind = API_EMBEDDINGS,
    .read = read_input,
    .whole = write_whole,
    .error = openai_error,
};
