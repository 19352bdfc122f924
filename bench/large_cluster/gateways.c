/* Simulates the gateways. Each gateway keeps its share of the streams running: when a stream
 * ends, it submits a new one at once. A prompt begins with one of a few shared prefixes, which
 * every replica soon has in its prefix cache; the rest of the prompt is new. All tokens of a
 * stream must arrive once and in order; otherwise the program ends. */
#include "bench/large_cluster/gateways.h"

#include <string.h>

#include "bench/die.h"
#include "bench/large_cluster/send.h"
#include "common/base/mem.h"

enum { N_PREFIXES = 16, TOKEN_IDS = 128000 };

struct stream {
    uint64_t generation;
    uint32_t n_received, n_wanted;
};

struct scale_gateways {
    struct stream *streams;
    uint32_t n_streams;
    uint32_t *prefixes, *ids;
};

void scale_gateways_open(struct scale *s)
{
    struct scale_gateways *g = s->gateways = mem_zalloc(sizeof *g);
    uint32_t n = N_PREFIXES * s->o.cached_tokens;
    g->n_streams = s->o.n_replicas * s->o.n_seqs;
    g->streams = mem_array(g->n_streams, sizeof *g->streams);
    g->prefixes = mem_array(n + 1, sizeof *g->prefixes);
    g->ids = mem_array(s->o.prompt_tokens, sizeof *g->ids);
    for (uint32_t i = 0; i < n; i++)
        g->prefixes[i] = (uint32_t)rng_below(&s->rng, TOKEN_IDS);
}

void scale_gateways_close(struct scale *s)
{
    mem_free(s->gateways->streams);
    mem_free(s->gateways->prefixes);
    mem_free(s->gateways->ids);
    mem_free(s->gateways);
}

static void submit(struct scale *s, uint32_t i_stream, bool is_first)
{
    struct scale_gateways *g = s->gateways;
    struct stream *x = &g->streams[i_stream];
    uint32_t n_cached = s->o.cached_tokens, n = s->o.prompt_tokens;
    /* The first answers end at a random token, so that ends are spread evenly from the start. */
    uint32_t least = is_first ? 1 : s->o.least_tokens;
    *x = (struct stream){.generation = x->generation + 1,
                         .n_wanted =
                             least + (uint32_t)rng_below(&s->rng, s->o.most_tokens - least + 1)};
    memcpy(g->ids, g->prefixes + rng_below(&s->rng, N_PREFIXES) * n_cached,
           n_cached * sizeof *g->ids);
    for (uint32_t i = n_cached; i < n; i++)
        g->ids[i] = (uint32_t)rng_below(&s->rng, TOKEN_IDS);
    struct msg m = {.type = MSG_SUBMIT,
                    .submit = {.id = {x->generation, i_stream},
                               .attempt = 1,
                               .tenant = 1,
                               .n_prompt = n,
                               .ids = {g->ids, n},
                               .sampling = {.temperature = 1,
                                            .top_p = 1,
                                            .top_k = -1,
                                            .repetition_penalty = 1,
                                            .seed = rng_next(&s->rng),
                                            .n_logprobs = -1,
                                            .n_prompt_logprobs = -1,
                                            .max_tokens = x->n_wanted}}};
    scale_send(s, s->n_workers + i_stream % s->o.n_gateways, &m);
}

void scale_gateways_start(struct scale *s)
{
    for (uint32_t i = 0; i < s->gateways->n_streams; i++)
        submit(s, i, true);
}

static void on_item(struct scale *s, const struct tokens_item *t)
{
    if (t->id.lo >= s->gateways->n_streams)
        bench_die("tokens of no stream");
    struct stream *x = &s->gateways->streams[t->id.lo];
    if (t->id.hi != x->generation || t->start != x->n_received)
        bench_die("stream %llu: tokens from %u on, %u are here", (unsigned long long)t->id.lo,
                  t->start, x->n_received);
    x->n_received += t->ids.n;
    s->counts.n_tokens += t->ids.n;
    if (t->finish == FINISH_NONE)
        return;
    if (t->finish != FINISH_LENGTH || x->n_received != x->n_wanted)
        bench_die("stream %llu ended by %s after %u of %u tokens: " STR_FMT,
                  (unsigned long long)t->id.lo, finish_reason_name(t->finish), x->n_received,
                  x->n_wanted, STR_ARG(t->text));
    s->counts.n_requests++;
    submit(s, (uint32_t)t->id.lo, false);
}

void scale_gateways_on_msg(struct scale *s, uint32_t i_gateway, const struct msg *m)
{
    (void)i_gateway;
    if (m->type == MSG_CLUSTER)
        s->n_replicas_ready = m->cluster.n_replicas_ready;
    else if (m->type == MSG_TOKENS)
        for (uint32_t i = 0; i < m->tokens.n_items; i++)
            on_item(s, &m->tokens.items[i]);
    else
        bench_die("%s for a gateway", msg_type_name(m->type));
}
