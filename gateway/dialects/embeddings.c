/* Serves /v1/embeddings, where prompts become vectors. Each prompt is submitted as a pooling
 * request, and the answer is one vector and no token. Bodies and answers are OpenAI's with
 * vLLM's additions. */
#include <sodium.h>

#include "common/base/mem.h"
#include "gateway/dialects/dialects.h"
#include "gateway/dialects/openai_completions.h"
#include "gateway/dialects/openai_json.h"
#include "gateway/fields/read.h"
#include "gateway/prepare/chunks.h"
#include "gateway/prepare/dialect.h"

static bool read_input(const struct prepare_model *m, json_t *owned_body, struct prepared *out)
{
    struct params *p = &out->params;
    if (!params_init(p, API_EMBEDDINGS, owned_body, &m->policy, &out->error))
        return false;
    if (m->pooling == POOLING_NONE)
        return api_error_set(
            &out->error, 400, "model",
            "This server cannot make embeddings with this model: the model's pooling is neither "
            "\"last token\" nor \"mean\", the only kinds that this server supports.");
    if (m->n_dimensions && p->dimensions > m->n_dimensions)
        return api_error_set(&out->error, 400, "dimensions",
                             "dimensions must be in [1, %u], because this model's vectors have %u "
                             "dimensions, got %u.",
                             m->n_dimensions, m->n_dimensions, p->dimensions);
    p->sampling.pooling = m->pooling;
    p->sampling.pooling_normalise = p->use_activation;
    return openai_prompts_read(p->prompt, "input", m->policy.vocab_size, &out->prompts,
                               &out->error);
}

static void append_numbers(struct strbuf *out, const float *v, uint32_t n)
{
    strbuf_append_c(out, "[");
    for (uint32_t i = 0; i < n; i++)
        strbuf_printf(out, i ? ",%.9g" : "%.9g", (double)v[i]);
    strbuf_append_c(out, "]");
}

/* Appends the values as little-endian float32, the byte order of every supported machine, in
 * base64. */
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

/* Appends the vector of one input. Returns its number of pieces. The last piece has no
 * `goes_on`. */
static uint32_t append_vector(struct strbuf *out, const struct params *p,
                              const struct answer_delta *d)
{
    uint32_t n_pieces = 1, n = d->g->n_vector;
    while (d[n_pieces - 1].prompt->goes_on)
        n_pieces++;
    if (p->dimensions && p->dimensions < n)
        n = p->dimensions;
    const struct generation **pieces = mem_array(n_pieces, sizeof *pieces);
    const struct prompt **prompts = mem_array(n_pieces, sizeof *prompts);
    float *v = mem_array(n ? n : 1, sizeof *v);
    for (uint32_t i = 0; i < n_pieces; i++) {
        pieces[i] = d[i].g;
        prompts[i] = d[i].prompt;
    }
    chunks_join(pieces, prompts, n_pieces, p->use_activation, v, n);
    if (p->embed_base64)
        append_base64(out, v, n);
    else
        append_numbers(out, v, n);
    mem_free(v);
    mem_free((void *)pieces);
    mem_free((void *)prompts);
    return n_pieces;
}

static void write_whole(struct strbuf *out, const struct answer_shape *a,
                        const struct answer_delta *d, uint32_t n, const struct answer_usage *u)
{
    strbuf_printf(out, "{\"id\":\"%s\",\"object\":\"list\",\"created\":%llu,\"model\":", a->id,
                  (unsigned long long)a->created_s);
    strbuf_append_json(out, a->model);
    strbuf_append_c(out, ",\"data\":[");
    for (uint32_t i = 0, at = 0; at < n; i++) {
        strbuf_printf(out, "%s{\"index\":%u,\"object\":\"embedding\",\"embedding\":", i ? "," : "",
                      i);
        at += append_vector(out, a->params, d + at);
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
