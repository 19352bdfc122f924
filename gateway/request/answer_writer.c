/* Writes the answer of a request: chunks of a stream as tokens arrive, or one body at the end.
 * `api_request_flush` is called after new tokens and when a client has read. It takes deltas
 * from the generations, feeds them through the parsers (answer/), and lets the dialect make
 * JSON. `reply_ops` sends the JSON.
 * Any write may find that the client has disconnected. Then `r->reply` is NULL and nothing more
 * is written. A large answer is written on the pool. Until its job is done, the loop only reads
 * the request's choices. All functions run on the loop thread, except for `write_run` and
 * `answer_run`. */
#include "gateway/request/answer_writer.h"

#include "common/base/mem.h"
#include "gateway/request/end.h"
#include "gateway/request/out.h"
#include "gateway/request/pool_work.h"
#include "gateway/request/promise.h"

enum {
    /* The pool writes an answer above these limits. Below them the loop needs a few
     * milliseconds. The limits count numbers with their names, and bytes of text. */
    INLINE_ENTRIES = 8192,
    INLINE_BYTES = 256 << 10,
    ID_BYTES = 8 /* estimated bytes of a token id in JSON, with its comma */
};

static bool has_reasoning(const struct api_request *r)
{
    return r->s->o.model.reasoning && r->dialect->call_prefix;
}

/* Adds what the choice used in the cluster. Choices of a request wait in the queue together. */
static void add_cluster_use(const struct api_choice *c, struct answer_usage *u)
{
    u->is_full = true;
    u->block_ms += c->earlier_block_ms + c->block_ms;
    u->step_ns += c->earlier_step_ns + c->step_ns;
    u->queue_ns = c->queue_ns > u->queue_ns ? c->queue_ns : u->queue_ns;
}

/* Sums the usage that was passed to the dialect so far. */
static struct answer_usage usage_of(const struct api_request *r)
{
    struct answer_usage u = {0};
    for (uint32_t i = 0; i < r->prepared.prompts.n; i++)
        u.prompt_tokens += r->prepared.prompts.items[i].n_ids;
    for (uint32_t i = 0; i < r->n_choices; i++) {
        u.completion_tokens += r->choices[i].g.n_ids;
        u.reasoning_tokens += r->choices[i].answer.reasoning_count.n_tokens;
        if (i % r->prepared.params.n_generated == 0)
            u.cached_tokens += r->choices[i].g.n_cached;
        if (r->full_usage)
            add_cluster_use(&r->choices[i], &u);
    }
    u.has_reasoning = has_reasoning(r);
    return u;
}

/* Returns the log-probabilities of the choice's prompt, or NULL when the request does not ask
 * for them. All choices of a prompt share them. */
static const struct prompt_logprobs *prompt_logprobs_of(const struct api_request *r,
                                                        const struct api_choice *c)
{
    uint32_t n = r->prepared.params.n_generated;
    bool wanted = r->prepared.params.sampling.n_prompt_logprobs >= 0;
    return wanted ? &r->choices[c->i_choice - c->i_choice % n].g.prompt_logprobs : NULL;
}

/* Turns new text of a choice into parts of answer `i_choice`. */
static void make_delta(struct api_request *r, struct api_choice *c, uint32_t i_choice,
                       const struct generation_delta *d, struct answer_delta *out)
{
    const struct params *p = &r->prepared.params;
    const struct generation *g = &c->g;
    *out = (struct answer_delta){
        .i_choice = i_choice,
        .prompt = &r->prepared.prompts.items[c->i_choice / p->n_generated],
        .ids = d->ids,
        .logprobs = d->logprobs,
        .n_ids = d->n_ids,
        .first = !g->begun,
        .end = d->end,
        .finish = g->finish == FINISH_LENGTH ? ANSWER_LENGTH : ANSWER_STOP,
        .stop_id = g->finish == FINISH_STOP ? g->stop_id : UINT32_MAX,
        .usage = {.completion_tokens = g->n_given_ids + d->n_ids, .cached_tokens = g->n_cached},
        .g = g,
        .prompt_logprobs = prompt_logprobs_of(r, c),
    };
    out->usage.prompt_tokens = out->prompt->n_ids;
    if (g->i_stop >= 0)
        out->stop_string = p->stops[g->i_stop];
    answer_feed(&c->answer, d->text, d->end, out);
    out->usage.has_reasoning = has_reasoning(r);
    if (r->full_usage && d->end)
        add_cluster_use(c, &out->usage);
    if (r->answer_rules.reasoning)
        out->usage.reasoning_tokens =
            reasoning_count_tokens(&c->answer.reasoning_count, &r->rules, g->ids,
                                   g->n_given_ids + d->n_ids, c->answer.n_before);
}

static void write_delta(struct api_request *r, struct api_choice *c,
                        const struct generation_delta *d, bool ids_matter)
{
    struct strbuf *out = &r->s->out;
    struct answer_delta a;
    make_delta(r, c, c->i_choice, d, &a);
    if (a.n_parts == 0 && !a.end && !(ids_matter && a.n_ids > 0)) {
        generation_took_text(&c->g, d);
        return; /* a parser holds the text back */
    }
    strbuf_reset(out);
    r->dialect->delta(out, &r->shape, &r->dialect_state, &a);
    generation_given(&c->g, &r->rules, d);
    api_request_write_out(r);
}

static void begin_stream(struct api_request *r)
{
    api_request_enter(r, API_STREAMING);
    r->last_write_ns = serving_now(r->s);
    promise_tell(r);
    r->reply_ops->begin(r->reply, r->dialect->stream_type(&r->prepared.params));
    if (r->reply && r->dialect->chunk_head) {
        r->dialect->chunk_head(&r->chunk_head, &r->shape);
        r->shape.chunk_head = strbuf_str(&r->chunk_head);
    }
    if (!r->reply || !r->dialect->open)
        return;
    strbuf_reset(&r->s->out);
    r->dialect->open(&r->s->out, &r->shape, &r->dialect_state);
    api_request_write_out(r);
}

void api_request_begin_early(struct api_request *r)
{
    begin_stream(r);
}

static void finish_stream(struct api_request *r)
{
    struct answer_usage usage = usage_of(r);
    strbuf_reset(&r->s->out);
    r->dialect->close(&r->s->out, &r->shape, &r->dialect_state, &usage);
    api_request_write_out(r);
    if (!r->reply)
        return; /* the write found that the client had disconnected */
    r->reply_ops->end(r->reply);
    r->reply = NULL;
    api_request_retire(r, OUTCOME_COUNT);
}

/* Returns true when a chunk may be written. With `stream_interval` a chunk waits for that number
 * of tokens, except for the first and last chunk. */
static bool is_due(const struct api_request *r, const struct api_choice *c)
{
    const struct generation *g = &c->g;
    const struct prompt_logprobs *s = prompt_logprobs_of(r, c);
    if (s && !prompt_logprobs_complete(s))
        return false; /* the prompt's log-probabilities must be written first */
    return !g->begun || generation_ended(g) ||
           g->n_ids - g->n_given_ids >= r->prepared.params.stream_interval;
}

static void flush_stream(struct api_request *r)
{
    bool ids_matter = r->rules.want_logprobs || r->prepared.params.return_token_ids;
    bool all_given = true;
    if (r->state == API_RUNNING)
        begin_stream(r);
    for (uint32_t i = 0; i < r->n_choices && r->reply; i++) {
        struct api_choice *c = &r->choices[i];
        struct generation_delta d;
        if (is_due(r, c) && generation_delta(&c->g, &r->rules, ids_matter, &d)) {
            if (r->reply_ops->room(r->reply) == 0)
                return; /* `on_drain` calls again when the client has read */
            write_delta(r, c, &d, ids_matter);
        }
        all_given = all_given && c->g.end_given;
    }
    if (all_given && r->reply)
        finish_stream(r);
}

/* Collects the choices of a prompt: either all in order, or the n choices with the best
 * log-probability per token, best first. */
static void collect_prompt(struct api_request *r, uint32_t i_prompt, struct answer_delta *out)
{
    const struct params *p = &r->prepared.params;
    struct api_choice *ranked[PARAMS_MAX_CHOICES];
    for (uint32_t i = 0; i < p->n_generated; i++) {
        struct api_choice *c = &r->choices[i_prompt * p->n_generated + i];
        uint32_t at = i;
        for (; p->n_generated > p->n && at > 0 &&
               generation_mean_logprob(&ranked[at - 1]->g) < generation_mean_logprob(&c->g);
             at--)
            ranked[at] = ranked[at - 1];
        ranked[at] = c;
    }
    for (uint32_t i = 0; i < p->n; i++) {
        struct generation_delta d;
        generation_delta(&ranked[i]->g, &r->rules, true, &d);
        make_delta(r, ranked[i], i_prompt * p->n + i, &d, &out[i]);
    }
}

/* Sends an answer in one piece. */
static void respond_text(struct api_request *r, struct strbuf *text)
{
    struct api_error e = {0};
    if (text->failed) {
        api_error_set(&e, 400, NULL,
                      "The answer is longer than %zu MiB: ask for fewer choices or tokens, or for "
                      "fewer log-probabilities.",
                      text->limit >> 20);
        api_request_fail(r, &e);
        return;
    }
    promise_tell(r);
    r->reply_ops->respond(r->reply, 200, strbuf_str(text), 0);
    r->reply = NULL;
    api_request_retire(r, OUTCOME_COUNT);
}

static void respond_out(struct api_request *r)
{
    struct serving *s = r->s;
    respond_text(r, &s->out);
    serving_trim_out(s);
}

/* Collects the texts of all choices. It runs only once per request, because it feeds the
 * parsers. */
static void collect(struct api_request *r)
{
    struct whole_answer *w = &r->whole;
    uint32_t n_prompts = r->prepared.prompts.n, n = r->prepared.params.n;
    if (w->deltas)
        return;
    w->n = n_prompts * n;
    w->deltas = mem_array(w->n, sizeof *w->deltas);
    for (uint32_t i = 0; i < n_prompts; i++)
        collect_prompt(r, i, w->deltas + (size_t)i * n);
    w->usage = usage_of(r);
}

/* Returns the largest possible number of log-probabilities and vector elements in the answer. */
static uint64_t count_entries(const struct api_request *r)
{
    const struct whole_answer *w = &r->whole;
    uint64_t n = 0, k = (uint64_t)r->prepared.params.sampling.n_logprobs + 1;
    for (uint32_t i = 0; i < w->n; i++) {
        const struct answer_delta *d = &w->deltas[i];
        n += d->logprobs ? d->n_ids * k : 0;
        n += d->prompt_logprobs ? (uint64_t)d->prompt_logprobs->n_known * d->prompt_logprobs->width
                                : 0;
        n += d->g->n_vector;
    }
    return n;
}

/* Returns the bytes of texts and ids in the answer. Each choice repeats the prompt when the
 * request asks for it. */
static uint64_t count_bytes(const struct api_request *r)
{
    const struct whole_answer *w = &r->whole;
    const struct params *p = &r->prepared.params;
    const uint64_t repeats = (uint64_t)p->echo + p->return_prompt_text;
    uint64_t n = p->asked.len;
    for (uint32_t i = 0; i < w->n; i++) {
        const struct answer_delta *d = &w->deltas[i];
        n += repeats * d->prompt->text.len;
        n += p->return_token_ids ? ((uint64_t)d->prompt->n_ids + d->n_ids) * ID_BYTES : 0;
        for (uint32_t k = 0; k < d->n_parts; k++)
            n += d->parts[k].text.len;
    }
    return n;
}

/* Writes the answer on a pool thread. All choices have ended, and the loop only reads them until
 * this job is done. */
static void write_run(struct encode_job *j)
{
    struct api_request *r = (struct api_request *)j;
    struct whole_answer *w = &r->whole;
    r->dialect->whole(&w->out, &r->shape, w->deltas, w->n, &w->usage);
}

static void write_done(struct encode_job *j)
{
    struct api_request *r = (struct api_request *)j;
    r->on_pool = NULL;
    if (r->state == API_RUNNING)
        respond_text(r, &r->whole.out);
    /* in any other state the client has disconnected, and the next sweep frees the request */
}

/* Submits the writing of the answer to the pool. Returns false when the pool is full. `bytes` is
 * the estimated size of the answer. */
static bool submit_writing(struct api_request *r, uint64_t bytes, void (*run)(struct encode_job *j),
                           void (*done)(struct encode_job *j))
{
    struct serving *s = r->s;
    if (r->whole.out.limit == 0)
        strbuf_init(&r->whole.out, s->out.limit);
    const struct encode_job job = {
        .run = run,
        .done = done,
        /* The request already holds this memory. A large number only marks the job as large. */
        .bytes = bytes > ENCODE_LARGE_BYTES ? ENCODE_LARGE_BYTES + 1 : bytes};
    return api_request_to_pool(r, s->pool, &job);
}

static void answer_run(struct encode_job *j)
{
    struct api_request *r = (struct api_request *)j;
    r->dialect->answer(&r->whole.out, &r->shape);
}

static void answer_done(struct encode_job *j)
{
    struct api_request *r = (struct api_request *)j;
    r->on_pool = NULL;
    if (r->state == API_PREPARING)
        respond_text(r, &r->whole.out);
}

/* Writes an answer that needs no tokens. Two full contexts of ids and texts are about 100,000
 * entries, too many for the loop. When the pool is full, the loop writes them nevertheless. */
void api_answer_prepared(struct api_request *r)
{
    struct serving *s = r->s;
    uint64_t n_ids = 0;
    for (uint32_t i = 0; i < r->prepared.prompts.n; i++)
        n_ids += r->prepared.prompts.items[i].n_ids;
    if (s->pool && n_ids > INLINE_ENTRIES &&
        submit_writing(r, n_ids * ID_BYTES, answer_run, answer_done))
        return;
    strbuf_reset(&s->out);
    r->dialect->answer(&s->out, &r->shape);
    respond_out(r);
}

static void respond_whole(struct api_request *r)
{
    struct serving *s = r->s;
    const struct whole_answer *w = &r->whole;
    collect(r);
    const uint64_t n_entries = count_entries(r), n_bytes = count_bytes(r);
    if (s->pool && (n_entries > INLINE_ENTRIES || n_bytes > INLINE_BYTES)) {
        /* When the pool is full, the next tick tries again. */
        (void)submit_writing(r, n_entries * sizeof(uint64_t) + n_bytes, write_run, write_done);
        return;
    }
    strbuf_reset(&s->out);
    r->dialect->whole(&s->out, &r->shape, w->deltas, w->n, &w->usage);
    respond_out(r);
}

void api_request_flush(struct api_request *r)
{
    if (!r->reply || r->on_pool || (r->state != API_RUNNING && r->state != API_STREAMING))
        return;
    if (r->prepared.params.stream)
        flush_stream(r);
    else if (r->n_ended == r->n_choices)
        respond_whole(r);
}
