/* Sends refusals and tokens to a gateway, as far as its link has credit. */
#include "head/core/deliver.h"

#include <string.h>

#include "head/request/logprobs.h"
#include "head/request/prompt_logprobs.h"
#include "head/request/request.h"
#include "head/state/outbox.h"
#include "head/state/requests.h"

/* TOKENS_BYTES limits the tokens of one message. A gateway that reconnects gets many tokens at
 * once, and a frame has a maximum size. The sizes here are estimates. */
#define TOKENS_BYTES (1u << 20)
#define ITEM_BYTES   256u /* size of an item without its ids and rows */
#define ID_BYTES     5u
#define ROW_BYTES    16u /* size of a row of log-probabilities without its entries */

/* Returns how many undelivered tokens of `r` fit into the budget, and reduces the budget.
 * Returns 0 when not even the first one fits. */
static uint32_t tokens_that_fit(const struct request *r, uint64_t *budget)
{
    uint32_t n = 0, n_new = request_n_generated(r) - r->n_delivered;
    /* a vector is sent whole, even above the budget; the next request then waits */
    if (request_pools(r)) {
        uint64_t bytes = r->vector.n * sizeof *r->vector.ptr;
        *budget -= bytes < *budget ? bytes : *budget;
        return n_new;
    }
    const struct logprob_row *rows = request_undelivered_rows(r);
    for (; n < n_new; n++) {
        uint64_t bytes = ID_BYTES;
        if (rows)
            bytes += ROW_BYTES + (ID_BYTES + 4u) * rows[n].ids.n;
        if (bytes > *budget)
            break;
        *budget -= bytes;
    }
    return n;
}

/* Returns how many undelivered prompt_logprobs rows fit into the budget. Only rows that are
 * adjacent in memory are sent at once. */
static uint32_t prompt_logprobs_that_fit(const struct request *r, uint64_t *budget)
{
    const struct logprob_row *rows;
    uint32_t n = 0, n_new = request_next_prompt_logprobs(r, &rows);
    for (; n < n_new; n++) {
        uint64_t bytes = ROW_BYTES + (ID_BYTES + 4u) * rows[n].ids.n;
        if (bytes > *budget)
            break;
        *budget -= bytes;
    }
    return n;
}

static bool are_all_prompt_logprobs(const struct request *r, uint32_t n)
{
    return r->prompt_logprobs->n_delivered + n == r->prompt_logprobs->n_known;
}

static void fill_item(const struct request *r, uint64_t *budget, struct tokens_item *out)
{
    uint32_t n_prompt_logprobs = r->has_prompt_logprobs ? prompt_logprobs_that_fit(r, budget) : 0,
             n = 0;
    if (!r->has_prompt_logprobs || are_all_prompt_logprobs(r, n_prompt_logprobs))
        n = tokens_that_fit(r, budget);
    request_fill_tokens(r, n_prompt_logprobs, n, out);
}

/* Records what was sent. Returns true when everything of the request has been delivered. */
static bool note_delivered(struct request *r, const struct tokens_item *item)
{
    r->n_delivered += request_pools(r) ? request_n_generated(r) : item->ids.n;
    request_rows_delivered(r);
    if (item->n_prompt_logprobs > 0)
        request_prompt_logprobs_delivered(r, item->n_prompt_logprobs);
    return r->n_delivered == request_n_generated(r) &&
           (!r->has_prompt_logprobs || are_all_prompt_logprobs(r, 0));
}

static uint32_t fill_refusals(struct head_core *h, const struct gateway_peer *g)
{
    uint32_t n = g->n_refusals < TOKENS_ITEMS_MAX ? g->n_refusals : TOKENS_ITEMS_MAX;
    for (uint32_t i = 0; i < n; i++) {
        const struct refusal *x = &g->refusals[i];
        h->items[i] = (struct tokens_item){.id = x->id,
                                           .i_choice = x->i_choice,
                                           .attempt = x->attempt,
                                           .finish = FINISH_ERROR,
                                           .status = x->status,
                                           .retry_after_s = x->retry_after_s,
                                           .predicted_ttft_ms = x->predicted_ttft_ms,
                                           .text = str_from(x->text)};
    }
    return n;
}

static enum status send_items(struct head_core *h, struct gateway_peer *g, uint32_t n)
{
    /* This epoch belongs to no replica. Gateways read the term from it. */
    uint64_t epoch = cluster_need_term(&h->cluster) << 32 | (h->cluster.n_epochs & 0xFFFFFFFFu);
    struct msg m = {.type = MSG_TOKENS,
                    .tokens = {.term_epoch = epoch, .items = h->items, .n_items = n}};
    return peers_send(&h->peers, g->peer, &m);
}

static void prefetch(const struct gateway_peer *g, uint32_t i)
{
    const struct request *far = NULL, *near = NULL;
    if (i + REQUEST_PREFETCH_FAR < g->outbox_end)
        far = g->outbox[i + REQUEST_PREFETCH_FAR];
    if (i + REQUEST_PREFETCH_NEAR < g->outbox_end)
        near = g->outbox[i + REQUEST_PREFETCH_NEAR];
    if (far)
        request_prefetch(far);
    if (near)
        request_prefetch_ids(near);
}

/* Sends one message with requests from the start of the outbox. Returns false when nothing more
 * can be sent now. */
static bool flush_tokens(struct head_core *h, struct gateway_peer *g)
{
    uint32_t n = 0;
    uint64_t budget = TOKENS_BYTES;
    while (g->outbox_begin < g->outbox_end && !g->outbox[g->outbox_begin])
        g->outbox_begin++;
    for (uint32_t i = g->outbox_begin;
         i < g->outbox_end && n < TOKENS_ITEMS_MAX && budget >= ITEM_BYTES; i++) {
        struct request *r = g->outbox[i];
        prefetch(g, i);
        if (!r)
            continue;
        budget -= ITEM_BYTES;
        if (r->usage.asks)
            usage_settle(&h->usage, &r->usage);
        h->item_requests[n] = r;
        fill_item(r, &budget, &h->items[n++]);
    }
    if (n == 0 || send_items(h, g, n) != STATUS_OK)
        return false;
    for (uint32_t i = 0; i < n; i++) {
        struct request *r = h->item_requests[i];
        bool all = note_delivered(r, &h->items[i]);
        outbox_remove(h, r);
        if (!all)
            outbox_add(h, r); /* the rest is sent in a later message */
        else if (r->finish != FINISH_NONE)
            requests_drop(h, r);
    }
    return true;
}

void deliver(struct head_core *h, struct gateway_peer *g)
{
    uint32_t n = fill_refusals(h, g);
    if (n > 0 && send_items(h, g, n) == STATUS_OK) {
        g->n_refusals -= n;
        memmove(g->refusals, g->refusals + n, g->n_refusals * sizeof *g->refusals);
    }
    while (flush_tokens(h, g))
        ;
}
