/* Moves held requests into replicas. route.c chooses the replica, and promises.c says whether the
 * request may enter it now.
 *
 * A pass looks at the held requests in their order. A request whose own conditions are not met is
 * passed over; when no replica takes requests, the pass ends.
 *
 * Invariants: everything runs on the loop thread. A request is looked at once in a pass, and is
 * then held, in one scheduler, or ended. */
#include "head/routing/admission.h"

#include <stdio.h>

#include "head/record/step_log.h"
#include "head/request/request.h"
#include "head/routing/adapter_bind.h"
#include "head/routing/grammars.h"
#include "head/routing/promises.h"
#include "head/routing/route.h"
#include "head/state/requests.h"

/* After this many requests of a pass have waited for other ones' promises, requests for which any
 * slot is shut are not looked at. */
enum { GUARDED_MOST = 64 };

/* Ends a request that exceeds the model's limits, which may have been unknown when it arrived.
 * Returns false when it has ended. */
static bool fit_to_model(struct head_core *h, struct request *r, const struct replica *g)
{
    char text[160];
    const uint32_t most = g->max_model_len + request_pools(r); /* a vector needs no position */
    if (r->n_prompt >= most) {
        snprintf(text, sizeof text,
                 "This model's maximum context length is %u tokens. However, your request has %u "
                 "input tokens. Please reduce the length of the input messages.",
                 g->max_model_len, r->n_prompt);
        requests_end(h, r, FINISH_ERROR, STATUS_INVALID, text);
        return false;
    }
    /* A rank refuses the whole plan for an id that its model does not have. Refusing the request
     * here ends only this request instead of the replica. */
    for (uint32_t i = 0; i < r->n_ids; i++) {
        if (r->ids[i] < g->vocab_size)
            continue;
        snprintf(text, sizeof text, "Token id %u is out of vocabulary (0 to %u).", r->ids[i],
                 g->vocab_size - 1);
        requests_end(h, r, FINISH_ERROR, STATUS_INVALID, text);
        return false;
    }
    if (r->ids_cap > most) {
        r->ids_cap = most;
        r->sampling.max_tokens = r->ids_cap - r->n_prompt;
        if (r->sampling.min_tokens > r->sampling.max_tokens)
            r->sampling.min_tokens = r->sampling.max_tokens;
    }
    if (r->n_ids >= r->ids_cap) {
        requests_end(h, r, FINISH_LENGTH, STATUS_OK, "");
        return false;
    }
    return true;
}

static void refuse_too_large(struct head_core *h, struct request *r)
{
    char text[160];
    snprintf(text, sizeof text,
             "The request can grow to %u tokens, which is more than the KV cache or one plan can "
             "hold. Lower max_tokens or shorten the prompt.",
             r->ids_cap);
    requests_end(h, r, FINISH_ERROR, STATUS_INVALID, text);
}

static void place(struct head_core *h, struct request *r, struct engine_slot *l)
{
    if (!fit_to_model(h, r, l->replica) || !promises_admit(h, r, l))
        return;
    requests_unhold(h, r);
    step_log_add(h->config.step_log, l->replica->index, r, h->now_ns);
    enum status s = scheduler_add(l->scheduler, r);
    if (s == STATUS_OK) {
        r->i_replica = l->replica->index;
        r->replica_id = l->replica->id;
        r->has_replica = true;
        l->due = true;
        route_placed(h, r, l);
        promises_placed(h, r, l);
        return;
    }
    step_log_refused(h->config.step_log, l->replica->index, s);
    requests_hold(h, r);
    if (s == STATUS_NO_MEMORY && !replica_is_shrunk(&h->cluster, l->replica))
        refuse_too_large(h, r);
}

bool admission_move(struct head_core *h, struct request *r, struct engine_slot *to,
                    struct request_salt salt)
{
    requests_send_away(h, r);
    if (!grammars_move(h, r, to))
        return false;
    r->salt = salt;
    r->n_hit = scheduler_cached_tokens(to->scheduler, r);
    place(h, r, to);
    return r->i_replica == to->replica->index;
}

/* Ends a request after its last try. Otherwise the request would cause losses of replicas for as
 * long as its client waits. */
static bool give_up(struct head_core *h, struct request *r)
{
    char text[sizeof r->text], made[56] = "before it generated a token";
    if (r->n_losses < REQUEST_MAX_LOSSES || !request_is_suspect(r))
        return false;
    events_add(
        &h->events, h->now_ns, LOG_WARN, "request_given_up",
        "id=%016llx%016llx choice=%u prompt_tokens=%u generated=%u groups_lost=%u gateway=%s",
        (unsigned long long)r->id.hi, (unsigned long long)r->id.lo, r->i_choice, r->n_prompt,
        request_n_generated(r), r->n_losses, log_quote(h->gateways[r->i_gateway]->node));
    if (request_n_generated(r) > 0)
        snprintf(made, sizeof made, "and it generated no token after its first %u",
                 request_n_generated(r));
    snprintf(text, sizeof text,
             "%u replicas were lost while they ran this request, %s. The request may be the cause, "
             "so it is not tried again.",
             r->n_losses, made);
    requests_end(h, r, FINISH_ERROR, STATUS_INTERNAL, text);
    return true;
}

/* Handles a request that is too large for all serving replicas. It waits while a replica that it
 * would fit into is not ready, or not whole. Otherwise it ends. Returns true when the request is
 * too large. */
static bool too_large(struct head_core *h, struct request *r)
{
    if (!route_awaits_room(h, r))
        return false;
    if (!fit_to_model(h, r, h->engine_slots[h->live[0]].replica) || route_may_have_room(h, r))
        return true;
    refuse_too_large(h, r);
    return true;
}

/* Returns the slot that the request may enter now, or NULL. `l` is the slot where it waits for its
 * grammar; NULL = none. Each try of the loop shuts a slot, so there are no more tries than slots.
 */
static struct engine_slot *find_slot(struct head_core *h, struct request *r, struct engine_slot *l)
{
    if (l)
        return promises_let_in(h, r, l) ? l : NULL;
    do
        l = route_find(h, r);
    while (l && !promises_let_in(h, r, l));
    return l;
}

/* Returns true when the request waits for a grammar, an adapter, room or a promise, or has ended.
 * `any_guarded`: many requests behind guards were tried in this pass. */
static bool is_passed_over(struct head_core *h, struct request *r, bool any_guarded)
{
    return grammars_waits(h, r) || !adapter_bind(h, r) || promises_shut_out(h, r, any_guarded) ||
           give_up(h, r) || too_large(h, r);
}

static void place_held(struct head_core *h)
{
    /* Requests that a full queue returns are appended to the list. They are not tried again in
     * this turn. */
    uint32_t n = h->n_held, n_guarded = 0;
    for (struct request *r = h->held_first, *next; r && n > 0; r = next, n--) {
        next = r->next;
        if (is_passed_over(h, r, n_guarded >= GUARDED_MOST))
            continue;
        struct engine_slot *l = grammars_engine_slot(h, r);
        if (!l && grammars_cannot(h, r))
            continue;
        l = find_slot(h, r, l);
        n_guarded += !l && h->promises.n_guarded > 0;
        if (!l && (h->promises.n_guarded > 0 || request_is_suspect(r)))
            /* the request waits for its own conditions; other ones are placed meanwhile */
            continue;
        if (!l)
            return;
        if (grammars_admit(h, r, l))
            place(h, r, l);
    }
}

void admission_place(struct head_core *h)
{
    struct head_grammars *g = &h->grammars;
    if (h->n_held == 0 || h->n_live == 0 || (g->n_waiting == h->n_held && g->looked == g->looks))
        return;
    g->passed_over = false;
    promises_begin_pass(h);
    place_held(h);
    promises_end_pass(h);
    /* A tenant was passed over, and the other tenants have had their turn. The order of turns no
     * longer counts. */
    if (g->passed_over) {
        g->looks++;
        g->any_turn = true;
        promises_begin_pass(h);
        place_held(h);
        promises_end_pass(h);
        g->any_turn = false;
    }
    g->looked = g->looks;
}

/* Ends held requests only. Schedulers end their own requests (scheduler_step). */
void admission_tick(struct head_core *h)
{
    for (struct request *r = h->held_first, *next; r; r = next) {
        next = r->next;
        if (r->deadline_ns != 0 && h->now_ns >= r->deadline_ns)
            requests_end(h, r, FINISH_TIMEOUT, STATUS_TIMEOUT,
                         "The request did not end before its deadline.");
    }
}
