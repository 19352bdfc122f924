/* Makes text, stop strings and deltas of one choice from the Tokens items of the head. serving
 * calls `generation_on_tokens` and acts on the event that it returns. The answer writer takes
 * text with `generation_delta` and confirms it with `generation_given`.
 * `stream` decides which tokens are new, so a repeated or lost item is harmless. `ids` only
 * grows, and holds all tokens for a resubmission. Text that may begin a stop string is never
 * emitted. This file does no I/O, and only the loop thread calls its functions. */
#include "gateway/generation/generation.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/base/mem.h"

enum { DECODER_LOOK_BACK = 32 };
#define NOTHING_LEFT                                                                               \
    "No token is allowed next: allowed_token_ids, bad_words, min_tokens and the grammar of the "   \
    "answer together exclude all tokens. Allow more tokens."
/* vLLM's value for a missing log-probability, because JSON has no -inf */
#define NO_LOGPROB (-9999.0f)

void generation_init(struct generation *g, const struct generation_rules *r, const uint32_t *prompt,
                     uint32_t n_prompt)
{
    uint32_t n = n_prompt < DECODER_LOOK_BACK ? n_prompt : DECODER_LOOK_BACK;
    *g = (struct generation){.i_stop = -1, .stop_id = UINT32_MAX};
    stream_init(&g->stream);
    strbuf_init(&g->text, 0);
    strbuf_init(&g->said, 0);
    g->decoder = text_decoder_new(r->tokenizer, r->skip_special, prompt + (n_prompt - n), n);
}

void generation_fini(struct generation *g)
{
    if (g->decoder)
        text_decoder_free(g->decoder);
    mem_free(g->ids);
    mem_free(g->logprobs);
    mem_free(g->vector);
    prompt_logprobs_fini(&g->prompt_logprobs);
    strbuf_fini(&g->text);
    strbuf_fini(&g->said);
    *g = (struct generation){.i_stop = -1};
}

bool generation_ended(const struct generation *g)
{
    return g->stream.phase == STREAM_ENDED;
}

double generation_mean_logprob(const struct generation *g)
{
    return g->n_ids ? g->logprob_sum / g->n_ids : (double)NO_LOGPROB;
}

static void push_id(struct generation *g, uint32_t id)
{
    if (g->n_ids == g->cap_ids) {
        g->cap_ids = g->cap_ids ? g->cap_ids * 2 : 32;
        g->ids = mem_realloc(g->ids, g->cap_ids * sizeof *g->ids);
    }
    g->ids[g->n_ids++] = id;
}

static void push_logprobs(struct generation *g, uint32_t id, const struct logprob_row *row)
{
    if (g->n_logprobs == g->cap_logprobs) {
        g->cap_logprobs = g->cap_logprobs ? g->cap_logprobs * 2 : 16;
        g->logprobs = mem_realloc(g->logprobs, g->cap_logprobs * sizeof *g->logprobs);
    }
    struct token_logprobs *out = &g->logprobs[g->n_logprobs++];
    *out =
        (struct token_logprobs){.n = 1, .offset = g->n_chars, .ids = {id}, .values = {NO_LOGPROB}};
    if (!row || row->ids.n == 0 || row->values.n != row->ids.n)
        return;
    out->n = row->ids.n < GENERATION_MAX_LOGPROBS ? row->ids.n : GENERATION_MAX_LOGPROBS;
    out->chosen_rank = row->chosen_rank;
    memcpy(out->ids, row->ids.ptr, out->n * sizeof *out->ids);
    memcpy(out->values, row->values.ptr, out->n * sizeof *out->values);
}

uint32_t generation_count_chars(struct str s)
{
    uint32_t n = 0;
    for (size_t i = 0; i < s.len; i++)
        n += ((unsigned char)s.ptr[i] & 0xC0) != 0x80;
    return n;
}

/* Appends decoded text. Returns true when the text completes a stop string. The text then ends
 * there. */
static bool push_text(struct generation *g, const struct generation_rules *r, struct str delta)
{
    struct stop_match m;
    size_t before = g->text.len;
    bool ignore = g->n_ids <= r->min_tokens && r->min_tokens > 0;
    bool hit = stop_matcher_feed(&g->stop, r->stops, delta, ignore, &m);
    strbuf_append_str(&g->text, delta);
    if (r->want_logprobs)
        g->n_chars += generation_count_chars(delta);
    if (!hit)
        return false;
    /* The earlier part of the stop string was held back, so it is still in `text`. */
    size_t cut = before + m.end - (r->include_stop ? 0 : m.bytes);
    if (r->want_logprobs)
        g->n_chars -= generation_count_chars((struct str){g->text.ptr + cut, g->text.len - cut});
    g->text.len = cut;
    g->text.ptr[cut] = '\0';
    g->i_stop = (int32_t)m.i_string;
    return true;
}

static enum generation_event fail(struct generation *g, struct api_error *why, int http_status,
                                  const char *text)
{
    stream_end(&g->stream);
    *why = (struct api_error){0};
    api_error_set(why, http_status, NULL, "%s", text);
    return GENERATION_FAILED;
}

/* Fails the choice with the error that the head sent. */
static enum generation_event fail_by_head(struct generation *g, const struct tokens_item *t,
                                          struct api_error *why)
{
    char text[256];
    int http_status = 500;
    if (t->status == STATUS_INVALID)
        http_status = 400;
    else if (t->status == STATUS_LIMIT)
        http_status = 429;
    else if (t->status == STATUS_TIMEOUT || t->status == STATUS_CLOSED)
        http_status = 503;
    snprintf(text, sizeof text, STR_FMT, (int)(t->text.len < 255 ? t->text.len : 255), t->text.ptr);
    if (!text[0])
        snprintf(text, sizeof text, "%s",
                 http_status == 429
                     ? "The server is overloaded: try again later."
                     : "The request failed in the cluster; the logs of the head and the workers "
                       "give the reason.");
    fail(g, why, http_status, text);
    why->retry_after_s = http_status == 429 && !t->retry_after_s ? 1 : t->retry_after_s;
    return GENERATION_FAILED;
}

static enum generation_event end_by_head(struct generation *g, const struct tokens_item *t,
                                         struct api_error *why)
{
    if (t->finish == FINISH_STOP || t->finish == FINISH_LENGTH) {
        stream_end(&g->stream);
        g->finish = t->finish;
        g->stop_id = t->finish == FINISH_STOP ? t->stop_id : UINT32_MAX;
        return GENERATION_PROGRESS;
    }
    if (t->finish == FINISH_TIMEOUT)
        return fail(g, why, 504, GENERATION_LATE);
    if (t->finish == FINISH_CANCELLED)
        return fail(g, why, 503, "The cluster cancelled the request. Try again later.");
    return fail_by_head(g, t, why);
}

static bool is_marker(const struct generation_rules *r, uint32_t id)
{
    for (uint32_t i = 0; i < r->n_marker_ids; i++)
        if (r->marker_ids[i] == id)
            return true;
    return false;
}

bool generation_shows(const struct generation_rules *r, uint32_t id)
{
    return !r->skip_special || !text_token_is_special(r->tokenizer, id) || is_marker(r, id);
}

/* Appends the text of one token. `hidden` is set for the stop id that ended the request, which
 * the client must not see. */
static enum generation_event push_token(struct generation *g, const struct generation_rules *r,
                                        uint32_t id, bool hidden, struct api_error *why)
{
    char text[TEXT_ERR_MAX] = "";
    const char *delta = "";
    size_t len = 0;
    push_id(g, id);
    if (hidden)
        return GENERATION_NOTHING;
    if (!g->decoder || text_decoder_push(g->decoder, id, &delta, &len, text) != TEXT_OK)
        return fail(
            g, why, 500,
            text[0] ? text : "A token of the answer could not be decoded. Send the request again.");
    if (push_text(g, r, (struct str){delta, len}))
        return GENERATION_STOPPED;
    if (!is_marker(r, id))
        return GENERATION_NOTHING;
    /* the decoder gave no text for the special token, so it is added here */
    struct str marker = {0};
    marker.ptr = (const char *)text_token_bytes(r->tokenizer, id, &marker.len);
    return push_text(g, r, marker) ? GENERATION_STOPPED : GENERATION_NOTHING;
}

static void flush_decoder(struct generation *g, const struct generation_rules *r)
{
    char why[TEXT_ERR_MAX];
    const char *delta = "";
    size_t len = 0;
    if (text_decoder_flush(g->decoder, &delta, &len, why) == TEXT_OK && len > 0 &&
        push_text(g, r, (struct str){delta, len}))
        g->finish = FINISH_STOP;
}

static void keep_vector(struct generation *g, struct f32_span v)
{
    if (v.n == 0 || g->vector)
        return;
    g->vector = mem_array(v.n, sizeof *g->vector);
    memcpy(g->vector, v.ptr, v.n * sizeof *v.ptr);
    g->n_vector = v.n;
}

/* Stores the rows of prompt log-probabilities in an item. Such rows arrive before the first
 * token, in items of their own. */
static enum generation_event take_prompt_logprobs(struct generation *g, const struct tokens_item *t,
                                                  struct api_error *why)
{
    if (t->n_prompt_logprobs == 0 || g->stream.phase != STREAM_OPEN ||
        t->attempt != g->stream.attempt)
        return GENERATION_NOTHING;
    switch (prompt_logprobs_take(&g->prompt_logprobs, t)) {
    case PROMPT_LOGPROBS_MISSING:
        stream_again(&g->stream);
        return GENERATION_RESUBMIT;
    case PROMPT_LOGPROBS_NO_MEMORY:
        return fail(
            g, why, 500,
            "The server has no memory for the prompt's log-probabilities. Ask for fewer of them.");
    default:
        return GENERATION_NOTHING;
    }
}

/* Finishes a choice that the head ended without an error. */
static enum generation_event end_well(struct generation *g, const struct generation_rules *r,
                                      struct api_error *why)
{
    if (!prompt_logprobs_complete(&g->prompt_logprobs))
        return fail(g, why, 503,
                    "The prompt's log-probabilities are missing, because the cluster has workers "
                    "of an older version. Upgrade all workers.");
    if (r->prompt_only) {
        g->finish = FINISH_LENGTH;
        g->stop_id = UINT32_MAX;
    }
    flush_decoder(g, r);
    return GENERATION_PROGRESS;
}

/* Adds the token at `t->ids[i]` to the choice. Returns GENERATION_NOTHING, or the event that
 * ends the choice. */
static enum generation_event take_token(struct generation *g, const struct generation_rules *r,
                                        const struct tokens_item *t, uint32_t i,
                                        struct api_error *why)
{
    const uint32_t id = t->ids.ptr[i];
    const bool last = i + 1 == t->ids.n;
    const bool hidden = last && t->finish == FINISH_STOP && !r->include_stop;
    const struct logprob_row *row = i < t->n_logprobs && t->logprobs ? &t->logprobs[i] : NULL;
    if (r->forbidden.params && forbidden_id(&r->forbidden, g->ids, g->n_ids, id))
        return fail(g, why, 400, NOTHING_LEFT);
    if (r->want_logprobs)
        push_logprobs(g, id, row);
    if (row && row->values.n > 0)
        g->logprob_sum += (double)fmaxf(row->values.ptr[0], NO_LOGPROB);
    return push_token(g, r, id, hidden, why);
}

enum generation_event generation_on_tokens(struct generation *g, const struct generation_rules *r,
                                           const struct tokens_item *t, struct api_error *why)
{
    uint32_t skip;
    enum generation_event taken = take_prompt_logprobs(g, t, why);
    if (taken != GENERATION_NOTHING)
        return taken;
    enum stream_verdict v = stream_on_tokens(&g->stream, t, &skip);
    if (v == STREAM_DROP)
        return GENERATION_NOTHING;
    if (v == STREAM_RESUBMIT)
        return GENERATION_RESUBMIT;
    if (v == STREAM_BROKEN)
        return fail(g, why, 500,
                    "The cluster ended the request with fewer tokens than it had already sent. "
                    "Send the request again.");
    if (t->n_cached > g->n_cached)
        g->n_cached = t->n_cached;
    for (uint32_t i = skip; i < t->ids.n && !r->prompt_only; i++) {
        enum generation_event e = take_token(g, r, t, i, why);
        if (e == GENERATION_FAILED)
            return e;
        if (e == GENERATION_STOPPED) {
            stream_end(&g->stream);
            g->finish = FINISH_STOP;
            return i + 1 == t->ids.n && t->finish != FINISH_NONE ? GENERATION_PROGRESS
                                                                 : GENERATION_STOPPED;
        }
    }
    if (t->finish == FINISH_NONE)
        return GENERATION_PROGRESS;
    keep_vector(g, t->vector);
    enum generation_event e = end_by_head(g, t, why);
    return e == GENERATION_PROGRESS ? end_well(g, r, why) : e;
}

bool generation_delta(const struct generation *g, const struct generation_rules *r, bool ids_matter,
                      struct generation_delta *out)
{
    size_t held = generation_ended(g) ? 0 : stop_matcher_held(&g->stop, r->stops);
    *out = (struct generation_delta){
        .text = {g->text.ptr ? g->text.ptr : "", g->text.len - held},
        .ids = g->ids + g->n_given_ids,
        .n_ids = g->n_ids - g->n_given_ids,
        .logprobs = r->want_logprobs ? g->logprobs : NULL,
        .end = generation_ended(g) && !g->end_given,
    };
    return out->text.len > 0 || out->end || (ids_matter && out->n_ids > 0);
}

void generation_took_text(struct generation *g, const struct generation_delta *d)
{
    strbuf_consume(&g->text, d->text.len);
}

void generation_given(struct generation *g, const struct generation_rules *r,
                      const struct generation_delta *d)
{
    g->n_given_ids += d->n_ids;
    g->n_logprobs = 0;
    g->begun = true;
    g->end_given = g->end_given || d->end;
    if (r->keep_said)
        strbuf_append_str(&g->said, d->text);
    strbuf_consume(&g->text, d->text.len);
}
