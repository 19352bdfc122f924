/* Runs the life of a request: it is made from a Submit, receives tokens until it ends, and fills
 * the messages to its gateway.
 *
 * core/submit.c calls `request_new`; the scheduler pushes tokens and vectors; core/deliver.c
 * calls `request_fill_tokens`. logprobs.c and prompt_logprobs.c keep the rows.
 *
 * Invariants: the code does no I/O and has no clock. The message is checked before anything is
 * allocated. All of a request's data is on its arena, except ids that grow, rows and the shared
 * grammar; `request_free` frees everything. `n_ids` never exceeds `ids_cap`, nor the memory for
 * ids. */
#include "head/request/request.h"

#include <assert.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/mem.h"
#include "common/collections/slab.h"
#include "head/request/logprobs.h"
#include "head/request/prompt_logprobs.h"
#include "head/request/shared_text.h"

enum {
    MAX_LOGPROBS = 128,  /* most alternatives per position; vLLM's default is 20 */
    MAX_STOP_IDS = 1024, /* most ids that end a request; the list is searched once per token */
    LINE_BYTES = 64,
    /* arena memory, enough for nearly every request's sampling parameters */
    ARENA_REST_BYTES = 512,
    SHORT_IDS = 512,      /* memory for answers of up to this length is allocated at once */
    NO_STOP = UINT16_MAX, /* no index into the stop ids: above two lists of MAX_STOP_IDS */
};

static const uint32_t next_states[REQUEST_STATE_COUNT] = {
    [REQUEST_QUEUED] = 1u << REQUEST_RUNNING | 1u << REQUEST_FINISHED | 1u << REQUEST_FAILED |
                       1u << REQUEST_CANCELLED,
    [REQUEST_RUNNING] = 1u << REQUEST_QUEUED | 1u << REQUEST_PREEMPTED | 1u << REQUEST_FINISHED |
                        1u << REQUEST_FAILED | 1u << REQUEST_CANCELLED,
    [REQUEST_PREEMPTED] = 1u << REQUEST_RUNNING | 1u << REQUEST_FINISHED | 1u << REQUEST_FAILED |
                          1u << REQUEST_CANCELLED,
};

void request_enter(struct request *r, enum request_state next)
{
    assert(next_states[r->state] & 1u << next);
    r->state = next;
}

static enum status check_sampling(const struct sampling_params *p, struct error *err)
{
    const struct {
        const char *name;
        float value, low, high;
    } ranges[] = {
        {"temperature", p->temperature, 0.0f, 1e6f},
        {"top_p", p->top_p, 0.0f, 1.0f},
        {"min_p", p->min_p, 0.0f, 1.0f},
        {"presence_penalty", p->presence_penalty, -1e6f, 1e6f},
        {"frequency_penalty", p->frequency_penalty, -1e6f, 1e6f},
        {"repetition_penalty", p->repetition_penalty, 0.0f, 1e6f},
    };
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (!(ranges[i].value >= ranges[i].low && ranges[i].value <= ranges[i].high))
            return error_set(err, STATUS_INVALID, "%s must be a number from %g to %g, got %g.",
                             ranges[i].name, (double)ranges[i].low, (double)ranges[i].high,
                             (double)ranges[i].value);
    if (p->n_logprobs < -1 || p->n_logprobs > MAX_LOGPROBS)
        return error_set(err, STATUS_INVALID, "logprobs must be at most %d, got %d.", MAX_LOGPROBS,
                         (int)p->n_logprobs);
    if (p->n_prompt_logprobs < -1 || p->n_prompt_logprobs > MAX_LOGPROBS)
        return error_set(err, STATUS_INVALID, "prompt_logprobs must be at most %d, got %d.",
                         MAX_LOGPROBS, (int)p->n_prompt_logprobs);
    if (p->n_prompt_logprobs >= 0 && p->pooling != POOLING_NONE)
        return error_set(err, STATUS_INVALID,
                         "prompt_logprobs cannot be used in a request for an embedding.");
    if (p->eos_ids.n > MAX_STOP_IDS || p->stop_ids.n > MAX_STOP_IDS)
        return error_set(err, STATUS_INVALID, "stop_token_ids must have at most %d ids, got %u.",
                         MAX_STOP_IDS, (unsigned)(p->stop_ids.n + p->eos_ids.n));
    if (p->max_tokens == 0 && p->pooling == POOLING_NONE)
        return error_set(err, STATUS_INVALID, "max_tokens must be at least 1, got 0.");
    return STATUS_OK;
}

static enum status check_lengths(const struct msg_submit *m, uint32_t max_model_len,
                                 struct error *err)
{
    if (m->n_prompt == 0)
        return error_set(err, STATUS_INVALID, "The prompt is empty. It needs at least one token.");
    if (m->ids.n < m->n_prompt)
        return error_set(err, STATUS_INVALID,
                         "the gateway announced a prompt of %u tokens, but sent only %u. Run the "
                         "same release on the head and the gateway",
                         m->n_prompt, m->ids.n);
    if (m->ids.n > m->n_prompt && m->sampling.pooling != POOLING_NONE)
        return error_set(err, STATUS_INVALID,
                         "the gateway sent %u generated tokens with a request for an embedding, "
                         "which generates none. Run the same release on the head and the gateway",
                         m->ids.n - m->n_prompt);
    if (m->n_prompt + (m->sampling.pooling == POOLING_NONE) > max_model_len)
        return error_set(err, STATUS_INVALID,
                         "This model's maximum context length is %u tokens. However, your request "
                         "has %u input tokens. Please reduce the length of the input messages.",
                         max_model_len, m->n_prompt);
    return STATUS_OK;
}

static bool copy_bytes(struct arena *a, const void **ptr, size_t n_bytes)
{
    if (n_bytes == 0) {
        *ptr = NULL;
        return true;
    }
    void *copy = arena_try_alloc(a, n_bytes);
    if (copy)
        memcpy(copy, *ptr, n_bytes);
    *ptr = copy;
    return copy != NULL;
}

static bool copy_ids(struct arena *a, struct u32_span *span)
{
    return copy_bytes(a, (const void **)&span->ptr, (size_t)span->n * sizeof *span->ptr);
}

static bool copy_sampling(struct arena *a, struct sampling_params *p)
{
    return copy_ids(a, &p->eos_ids) && copy_ids(a, &p->stop_ids) && copy_ids(a, &p->allowed_ids) &&
           copy_ids(a, &p->bad_words) &&
           copy_bytes(a, (const void **)&p->logit_bias,
                      (size_t)p->n_logit_bias * sizeof *p->logit_bias) &&
           copy_bytes(a, (const void **)&p->grammar.ptr, p->grammar.len) &&
           copy_bytes(a, (const void **)&p->lora.ptr, p->lora.len);
}

uint64_t request_sampling_bytes(const struct request *r)
{
    const struct sampling_params *p = &r->sampling;
    uint64_t n_ids = (uint64_t)p->eos_ids.n + p->stop_ids.n + p->allowed_ids.n + p->bad_words.n;
    return n_ids * sizeof(uint32_t) + p->n_logit_bias * sizeof *p->logit_bias + p->grammar.len +
           p->lora.len + r->n_logged_bytes;
}

static bool span_has(struct u32_span span, uint32_t id)
{
    for (uint32_t i = 0; i < span.n; i++)
        if (span.ptr[i] == id)
            return true;
    return false;
}

/* Returns a number below n_eos when `id` is an EOS id, and a higher one when it is another id
 * that ends the request. Returns NO_STOP when `id` does not end the request. */
static uint32_t stop_of(const struct request *r, uint32_t id)
{
    if (r->n_stops <= REQUEST_STOPS) {
        for (uint32_t i = 0; i < r->n_stops; i++)
            if (r->stops[i] == id)
                return i;
        return NO_STOP;
    }
    if (span_has(r->sampling.eos_ids, id))
        return 0;
    return span_has(r->sampling.stop_ids, id) ? r->n_eos : NO_STOP;
}

void request_keep_stops(struct request *r)
{
    const struct sampling_params *p = &r->sampling;
    r->n_stoppable = r->n_prompt + p->min_tokens;
    r->n_eos = (uint16_t)p->eos_ids.n;
    r->n_stops = (uint16_t)(p->eos_ids.n + p->stop_ids.n);
    for (uint32_t i = 0; i < r->n_stops && r->n_stops <= REQUEST_STOPS; i++)
        r->stops[i] = i < r->n_eos ? p->eos_ids.ptr[i] : p->stop_ids.ptr[i - r->n_eos];
}

/* Returns the finish reason if the request ends with its last token. A stop id counts only from
 * min_tokens on. Ranks mask stop ids before that, so this matters only for ids that are not in
 * the rank's mask. */
static enum finish_reason finish_after_last(struct request *r)
{
    uint32_t n = request_n_generated(r);
    if (n == 0)
        return FINISH_NONE;
    uint32_t id = r->ids[r->n_ids - 1],
             stop = r->n_ids >= r->n_stoppable ? stop_of(r, id) : NO_STOP;
    if (stop == NO_STOP)
        return r->n_ids == r->ids_cap ? FINISH_LENGTH : FINISH_NONE;
    r->stop_id = stop < r->n_eos ? UINT32_MAX : id;
    return FINISH_STOP;
}

/* Reserves arena memory for hashes (16 bytes for every 16 ids) and the other data. */
static bool reserve_arena(struct request *r)
{
    return arena_reserve(&r->arena, (size_t)r->ids_room + ARENA_REST_BYTES);
}

static enum status copy_ids_and_sampling(struct request *r, const struct msg_submit *m,
                                         struct error *err)
{
    r->ids_room = r->ids_cap - m->ids.n < SHORT_IDS ? r->ids_cap : m->ids.n;
    r->ids = mem_try_alloc((size_t)r->ids_room * sizeof *r->ids);
    if (!r->ids || !reserve_arena(r) || !copy_sampling(&r->arena, &r->sampling))
        return error_set(err, STATUS_NO_MEMORY,
                         "the head has no memory for the request of %u tokens. Try again later",
                         m->ids.n);
    memcpy(r->ids, m->ids.ptr, (size_t)m->ids.n * sizeof *r->ids);
    r->n_ids = m->ids.n;
    return STATUS_OK;
}

bool request_make_room(struct request *r)
{
    if (request_ids_room(r) >= r->ids_cap)
        return true;
    uint32_t *ids = mem_try_realloc(r->ids, (size_t)r->ids_cap * sizeof *ids);
    if (!ids)
        return false;
    r->ids = ids;
    r->ids_room = r->ids_cap;
    return true;
}

uint64_t request_held_bytes(const struct request *r)
{
    return sizeof *r + (uint64_t)r->ids_room * sizeof *r->ids + arena_held(&r->arena);
}

struct request_salt request_salt_copied(struct request_salt salt, uint64_t term_epoch)
{
    const uint64_t in[3] = {salt.lo, salt.hi, term_epoch};
    struct request_salt out;
    crypto_generichash((unsigned char *)&out, sizeof out, (const unsigned char *)in, sizeof in,
                       NULL, 0);
    return out;
}

static struct request_salt salt_of(uint64_t tenant, struct str cache_salt)
{
    struct request_salt salt;
    crypto_generichash_state h;
    crypto_generichash_init(&h, NULL, 0, sizeof salt);
    crypto_generichash_update(&h, (const unsigned char *)&tenant, sizeof tenant);
    crypto_generichash_update(&h, (const unsigned char *)cache_salt.ptr, cache_salt.len);
    crypto_generichash_final(&h, (unsigned char *)&salt, sizeof salt);
    return salt;
}

/* Allocates a request, aligned to a cache line, since the struct is ordered by cache lines. */
struct request *request_alloc(struct slab *slab)
{
    struct request *r = slab ? slab_try_alloc(slab) : mem_aligned(LINE_BYTES, sizeof *r);
    if (r)
        *r = (struct request){.slab = slab};
    return r;
}

/* Copies the sampling parameters. A vector is returned with one id of any value, so a pooling
 * request keeps no other parameters. */
static void keep_sampling(struct request *r, const struct sampling_params *s, uint32_t max_tokens)
{
    r->sampling = *s;
    r->sampling.max_tokens = max_tokens;
    if (r->sampling.min_tokens > max_tokens)
        r->sampling.min_tokens = max_tokens;
    if (!request_pools(r))
        return;
    r->sampling = (struct sampling_params){.top_p = 1,
                                           .repetition_penalty = 1,
                                           .n_logprobs = -1,
                                           .n_prompt_logprobs = -1,
                                           .max_tokens = max_tokens,
                                           .lora = s->lora,
                                           .lora_id = s->lora_id,
                                           .pooling = s->pooling,
                                           .pooling_normalise = s->pooling_normalise};
}

enum status request_new(struct slab *slab, const struct msg_submit *m, uint32_t max_model_len,
                        uint64_t now_ns, struct request **out, struct error *err)
{
    *out = NULL;
    TRY(check_lengths(m, max_model_len, err));
    TRY(check_sampling(&m->sampling, err));
    /* a pooling request's one token is never run */
    bool pools = m->sampling.pooling != POOLING_NONE;
    uint32_t room = max_model_len + pools - m->n_prompt;
    uint32_t wanted = pools ? 1 : m->sampling.max_tokens;
    uint32_t max_tokens = wanted < room ? wanted : room;
    if (m->ids.n - m->n_prompt > max_tokens)
        return error_set(err, STATUS_INVALID,
                         "the gateway sent %u generated tokens with the request, but its "
                         "max_tokens is %u. Run the same release on the head and the gateway",
                         m->ids.n - m->n_prompt, max_tokens);
    struct request *r = request_alloc(slab);
    if (!r)
        return error_set(err, STATUS_NO_MEMORY,
                         "the head has no memory for the request. Try again later");
    arena_init(&r->arena, 0); /* the message and ids_cap bound the arena */
    r->id = m->id;
    r->i_choice = m->i_choice;
    r->attempt = m->attempt;
    r->tenant = m->tenant;
    r->salt = r->own_salt = salt_of(m->tenant, m->cache_salt);
    r->priority = m->priority;
    r->resubmitted = m->attempt > 1 || m->ids.n > m->n_prompt;
    r->arrival_ns = now_ns;
    /* a request that continues an answer, or comes back, has had its decision */
    if (m->slo_ttft_ms > 0 && !r->resubmitted)
        r->promise = (struct request_promise){.state = PROMISE_ASKED, .slo_ms = m->slo_ttft_ms};
    if (m->deadline_ms && m->deadline_ms <= (UINT64_MAX - now_ns) / NS_PER_MS)
        r->deadline_ns = now_ns + m->deadline_ms * NS_PER_MS;
    keep_sampling(r, &m->sampling, max_tokens);
    r->n_prompt = m->n_prompt;
    r->ids_cap = m->n_prompt + max_tokens;
    enum status s = copy_ids_and_sampling(r, m, err);
    if (s == STATUS_OK && !request_prompt_logprobs_init(r, m->n_known_logprobs))
        s = error_set(err, STATUS_NO_MEMORY,
                      "the head has no memory for the request. Try again later");
    if (s != STATUS_OK) {
        request_free(r);
        return s;
    }
    request_keep_stops(r);
    r->finish = finish_after_last(r);
    *out = r;
    return STATUS_OK;
}

void request_count_loss(struct request *r, uint64_t now_ns)
{
    bool moved = r->n_ids > (r->n_ids_at_loss ? r->n_ids_at_loss : r->n_prompt);
    r->n_losses = moved ? 0 : r->n_losses + 1;
    r->n_ids_at_loss = r->n_ids;
    r->lost_ns = now_ns;
}

bool request_is_suspect(const struct request *r)
{
    return r->n_losses >= REQUEST_SUSPECT_LOSSES && r->n_ids == r->n_ids_at_loss;
}

#define CALM_NS      (2 * NS_PER_S)
#define WAIT_CALM_NS (10 * NS_PER_S)

bool request_may_be_tried(const struct request *r, uint64_t calm_since_ns, uint64_t now_ns)
{
    return !request_is_suspect(r) || now_ns - calm_since_ns >= CALM_NS ||
           now_ns - r->lost_ns >= WAIT_CALM_NS;
}

void request_free(struct request *r)
{
    if (!r)
        return;
    assert(!r->sched);
    request_prompt_logprobs_fini(r);
    request_logprobs_fini(r);
    if (r->ids_room > 0)
        mem_free(r->ids);
    shared_text_release(r->grammar_text);
    arena_fini(&r->arena);
    if (r->slab)
        slab_free(r->slab, r);
    else
        mem_free(r);
}

enum finish_reason request_push_token(struct request *r, uint32_t id,
                                      const struct logprob_row *logprobs)
{
    assert(r->n_ids < r->ids_cap && r->n_ids < request_ids_room(r) && r->finish == FINISH_NONE);
    r->ids[r->n_ids++] = id;
    /* Once rows have begun, every token needs a row, since readers index by token. */
    if ((logprobs || r->logprobs) && r->sampling.n_logprobs >= 0)
        request_push_row(r, logprobs ? logprobs : &(struct logprob_row){0});
    return r->finish = finish_after_last(r);
}

void request_take_vector(struct request *r, struct f32_span vector)
{
    r->vector = vector;
    if (copy_bytes(&r->arena, (const void **)&r->vector.ptr, (size_t)vector.n * sizeof(float)))
        return;
    r->vector = (struct f32_span){0};
    r->status = STATUS_NO_MEMORY;
    snprintf(r->text, sizeof r->text, "the head has no memory for a vector of %u numbers",
             vector.n);
}

/* Fills in a vector, but not the id with which it was returned, since that id has no meaning. */
static void fill_vector(const struct request *r, struct tokens_item *out)
{
    out->ids.n = 0;
    out->vector = r->vector;
    if (r->finish == FINISH_LENGTH)
        out->finish = r->status == STATUS_OK ? FINISH_STOP : FINISH_ERROR;
}

/* Fills in rows of the prompt. Returns true when no known row remains to be sent. */
static bool fill_prompt_logprobs(const struct request *r, uint32_t n, struct tokens_item *out)
{
    (void)request_next_prompt_logprobs(r, &out->prompt_logprobs);
    out->n_prompt_logprobs = n;
    out->prompt_start = r->prompt_logprobs->n_delivered;
    return r->prompt_logprobs->n_delivered + n == r->prompt_logprobs->n_known;
}

void request_fill_tokens(const struct request *r, uint32_t n_prompt_logprobs, uint32_t n,
                         struct tokens_item *out)
{
    bool all = n == request_n_generated(r) - r->n_delivered;
    *out = (struct tokens_item){.id = r->id,
                                .i_choice = r->i_choice,
                                .attempt = r->attempt,
                                .start = r->n_delivered,
                                .ids = {r->ids + r->n_prompt + r->n_delivered, n},
                                .n_cached = r->n_cached};
    if (r->n_delivered == 0 && n > 0 && r->scheduled_ns > r->arrival_ns)
        out->queue_us = (r->scheduled_ns - r->arrival_ns) / 1000;
    if (r->usage.asks) {
        out->block_ms = r->usage.block_ms;
        out->step_ns = r->usage.step_ns;
    }
    if (r->n_delivered == 0)
        out->predicted_ttft_ms = r->promise.predicted_ms;
    const struct logprob_row *rows = request_undelivered_rows(r);
    if (rows && n > 0) {
        out->logprobs = rows;
        out->n_logprobs = n;
    }
    if (r->has_prompt_logprobs && !fill_prompt_logprobs(r, n_prompt_logprobs, out))
        return;
    if (!all || r->finish == FINISH_NONE)
        return;
    out->finish = r->finish;
    out->stop_id = r->stop_id;
    out->status = r->status;
    out->retry_after_s = r->retry_after_s;
    out->text = str_from(r->text);
    if (request_pools(r))
        fill_vector(r, out);
    if (r->has_prompt_logprobs && r->prompt_logprobs->out_of_memory) {
        out->finish = FINISH_ERROR;
        out->status = STATUS_NO_MEMORY;
        out->text = STR("the head has no memory for the prompt's log-probabilities");
    }
}
