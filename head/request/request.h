#pragma once
/* Runs the life of a request (state.h): it is made from a Submit, takes tokens one by one until
 * it ends, and records what its gateway has. The code does no I/O. */
#include "head/request/state.h"

/* Returns the salt for a request whose blocks were copied from a replica of this epoch. Such
 * requests share blocks only with each other. */
struct request_salt request_salt_copied(struct request_salt salt, uint64_t term_epoch);
/* Counts a lost replica. Losses count together until the request has made a token. */
void request_count_loss(struct request *r, uint64_t now_ns);
/* Returns true when so many replicas were lost before the request made a token that it may be
 * the cause. */
bool request_is_suspect(const struct request *r);
/* A request runs without other suspects, in a calm cluster, after this many lost replicas. */
#define REQUEST_SUSPECT_LOSSES 2u
#define REQUEST_MAX_LOSSES     3u /* lost replicas after which a request is not tried again */
/* Returns true when a suspect may be tried: no replica was lost or became ready for two seconds,
 * or the suspect has waited for ten. When machines fail one after another, it would otherwise be
 * blamed for their losses. `calm_since_ns` is the time of the last such event; 0 = none. */
bool request_may_be_tried(const struct request *r, uint64_t calm_since_ns, uint64_t now_ns);
/* Changes the state. Asserts that the transition is allowed. */
void request_enter(struct request *r, enum request_state next);
/* Makes a request from a Submit and copies its data. max_model_len limits n_prompt + max_tokens:
 * max_tokens is reduced, and a prompt that leaves no room gives STATUS_INVALID with vLLM's text.
 * Sets `resubmitted`; the caller sets i_gateway and arrival_seq. `finish` is set when a
 * resubmitted request already ends with its last token. */
MUST_USE enum status request_new(struct slab *slab, const struct msg_submit *m,
                                 uint32_t max_model_len, uint64_t now_ns, struct request **out,
                                 struct error *err);
/* These functions serve a replay, which fills in a request by itself. request_alloc returns an
 * empty request, and request_keep_stops derives the stop ids from its sampling. */
struct request *request_alloc(struct slab *slab);
void request_keep_stops(struct request *r);
void request_free(struct request *r);
/* Reserves memory for all ids that the request may have. A waiting request has little more than
 * the ids that came with it. Only as many requests run as replicas have slots, which bounds the
 * memory. Returns false when memory is missing. */
MUST_USE bool request_make_room(struct request *r);
/* Returns the bytes that a request holds before it runs, without grammar_text. */
uint64_t request_held_bytes(const struct request *r);
/* Appends a generated token and decides whether the request ends with it (EOS, stop id or
 * length). */
enum finish_reason request_push_token(struct request *r, uint32_t id,
                                      const struct logprob_row *logprobs);

/* Like request_push_token for a token without a row, which nearly every token is. */
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
/* Keeps the vector of a pooling request. Call before the id that ends it is pushed. Without
 * memory the request fails. */
void request_take_vector(struct request *r, struct f32_span vector);
/* Returns the bytes that the request's sampling lists and texts take in a message. With the ids
 * they are nearly all of its admission in a plan. */
uint64_t request_sampling_bytes(const struct request *r);
/* Fills in n undelivered tokens after n_prompt_logprobs rows of the prompt, and the end if these
 * are the last. n is 0 while rows are left. */
void request_fill_tokens(const struct request *r, uint32_t n_prompt_logprobs, uint32_t n,
                         struct tokens_item *out);
