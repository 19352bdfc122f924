#pragma once
/* Runs the life of a request (state.h). A request is made from a Submit and takes tokens one by
 * one until it ends. It also records which tokens its gateway has. The code does no I/O. */
#include "head/request/state.h"

/* Returns the salt for a request whose blocks were copied from a replica of this epoch. Such
 * requests share blocks only with each other. */
struct request_salt request_salt_copied(struct request_salt salt, uint64_t term_epoch);
/* Counts a lost replica for the request. When the request has generated a token since the last
 * loss, the count becomes 0 instead. */
void request_count_loss(struct request *r, uint64_t now_ns);
/* Returns true when the request may be the cause of lost replicas: at least
 * REQUEST_SUSPECT_LOSSES were lost before it generated a token. */
bool request_is_suspect(const struct request *r);
/* REQUEST_SUSPECT_LOSSES is the number of lost replicas that makes a request a suspect. A
 * suspect runs without other suspects, in a calm cluster. */
#define REQUEST_SUSPECT_LOSSES 2u
#define REQUEST_MAX_LOSSES     3u /* lost replicas after which a request is not tried again */
/* Returns true when the request is no suspect, or is a suspect that may be tried. A suspect may
 * be tried when no replica was lost or became ready for two seconds, or ten seconds after its
 * own last loss. Without the wait, the head would blame a suspect for machines that fail one
 * after another. `calm_since_ns` is the time of the last loss or start of a replica; 0 = none. */
bool request_may_be_tried(const struct request *r, uint64_t calm_since_ns, uint64_t now_ns);
/* Changes the request's state. Asserts that the transition is allowed. */
void request_enter(struct request *r, enum request_state next);
/* Makes a request from a Submit and copies its data. max_model_len limits n_prompt + max_tokens.
 * The function reduces max_tokens to this limit. A prompt that leaves no position for a token
 * gives STATUS_INVALID with vLLM's text. Sets `resubmitted`; the caller sets i_gateway and
 * arrival_seq. Sets `finish` when a resubmitted request already ends with its last token. */
MUST_USE enum status request_new(struct slab *slab, const struct msg_submit *m,
                                 uint32_t max_model_len, uint64_t now_ns, struct request **out,
                                 struct error *err);
/* These functions are for a replay, which fills in a request by itself. request_alloc returns an
 * empty request, and request_keep_stops derives the stop ids from the request's sampling
 * parameters. */
struct request *request_alloc(struct slab *slab);
void request_keep_stops(struct request *r);
void request_free(struct request *r);
/* Reserves memory for all ids that the request may have. A waiting request has memory for little
 * more than the ids of its Submit. Only as many requests run as replicas have slots, which
 * bounds the memory. Returns false when memory is missing. */
MUST_USE bool request_make_room(struct request *r);
/* Returns the number of bytes that a request holds before it runs, without grammar_text. */
uint64_t request_held_bytes(const struct request *r);
/* Appends a generated token and decides whether the request ends with it (EOS, stop id or
 * length). */
enum finish_reason request_push_token(struct request *r, uint32_t id,
                                      const struct logprob_row *logprobs);

/* Like request_push_token, for a token without a row of log-probabilities. Nearly every token is
 * of this kind. */
static inline enum finish_reason request_push_id(struct request *r, uint32_t id)
{
    bool plain = r->n_ids + 1 < r->ids_cap && !r->logprobs && r->n_stops <= REQUEST_STOPS;
    for (uint32_t i = 0; i < REQUEST_STOPS; i++)
        plain = plain && (r->stops[i] != id || i >= r->n_stops);
    if (!plain)
        return request_push_token(r, id, NULL);
    r->ids[r->n_ids++] = id;
    return FINISH_NONE;
}
/* Stores the vector of a pooling request. Call it before the id that ends the request is pushed.
 * Without memory the request fails. */
void request_take_vector(struct request *r, struct f32_span vector);
/* Returns the number of bytes that the request's sampling lists and texts take in a message.
 * Together with the ids, they are nearly all bytes of its admission in a plan. */
uint64_t request_sampling_bytes(const struct request *r);
/* Writes to `out` the n undelivered tokens that follow n_prompt_logprobs rows of the prompt, and
 * the end of the request if these tokens are the last. n is 0 while undelivered rows remain. */
void request_fill_tokens(const struct request *r, uint32_t n_prompt_logprobs, uint32_t n,
                         struct tokens_item *out);
