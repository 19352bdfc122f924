#pragma once
/* The life of a request (state.h): made of a Submit, it takes tokens one by one until it ends, and
 * keeps account of what its gateway has. Pure. */
#include "head/request/state.h"

/* The salt of a request with this salt and blocks that were copied from a replica of this epoch:
 * such requests share among themselves, and with nobody who did not come that way. */
struct request_salt request_salt_copied(struct request_salt salt, uint64_t term_epoch);
/* A replica has been lost under it: one more, if it made nothing since the one before. */
void request_count_loss(struct request *r, uint64_t now_ns);
/* So many replicas were lost before it made a token that it may be what ends them. */
bool request_is_suspect(const struct request *r);
#define REQUEST_SUSPECT_LOSSES 2u /* it runs without other suspects in its replica, in calm; */
#define REQUEST_MAX_LOSSES     3u /* it is not tried again */
/* Whether a suspect may be tried: for two seconds no replica was lost and none began to serve, or
 * it waited for ten. Where machines fail one behind the other it would be blamed for their losses.
 * calm_since_ns: when that happened last; 0: never. */
bool request_may_be_tried(const struct request *r, uint64_t calm_since_ns, uint64_t now_ns);
/* Asserts that the transition is allowed. */
void request_enter(struct request *r, enum request_state next);
/* Copies what the message holds. max_model_len bounds n_prompt + max_tokens (max_tokens is clipped;
 * a prompt that leaves no room is STATUS_INVALID with vLLM's wording). Sets resubmitted; the caller
 * sets i_gateway and arrival_seq. A resubmission whose last token already ends it has finish set.
 */
MUST_USE enum status request_new(struct slab *slab, const struct msg_submit *m,
                                 uint32_t max_model_len, uint64_t now_ns, struct request **out,
                                 struct error *err);
/* For who fills a request by hand (replay): an empty one, and what sampling implies for each token.
 */
struct request *request_alloc(struct slab *slab);
void request_keep_stops(struct request *r);
void request_free(struct request *r);
/* A request that waits has memory for the ids that came with it, and little more; one that is to
 * run needs it for all that it may have. At most as many run as replicas have slots. False: no
 * memory. */
MUST_USE bool request_make_room(struct request *r);
/* Bytes that a request holds before it runs, grammar_text apart. */
uint64_t request_held_bytes(const struct request *r);
/* Appends one generated token and decides whether the request ends with it (EOS, stop id, length).
 */
enum finish_reason request_push_token(struct request *r, uint32_t id,
                                      const struct logprob_row *logprobs);

/* The same for what nearly every token is: no row comes with it. */
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
/* Keeps a pooling request's answer, before the id that ends it. Without memory the request has
 * failed. */
void request_take_vector(struct request *r, struct f32_span vector);
/* Bytes that the lists and texts of its sampling have on the wire: with ids, nearly all that its
 * admission weighs in a plan. */
uint64_t request_sampling_bytes(const struct request *r);
/* n of the tokens that its gateway does not have, behind n_prompt_logprobs rows of its prompt's,
 * with the end if these are the last. n is 0 while rows are left. */
void request_fill_tokens(const struct request *r, uint32_t n_prompt_logprobs, uint32_t n,
                         struct tokens_item *out);
