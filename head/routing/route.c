/* Chooses the replica for a request: the replica from which the first token, and then the
 * beginning of its answer, is expected soonest. admission.c and transfer_policy.c call it. The
 * code changes only figures in the request and the core's `routes`.
 *
 * Before the first token the replica has to finish the steps in flight. It then computes the
 * queued prompts and the part of this prompt that its prefix cache lacks, beside the sequences
 * that decode. When its slots or its KV cache are full, some sequences have to end first. Each
 * of these times comes from the results of the replica's own steps (step_time.h). A replica that
 * slows down therefore gets fewer requests, and an overdue step counts before its result
 * arrives.
 *
 * A request is thus placed with the cache that holds its prefix, unless computing the prefix
 * elsewhere would be sooner. In that case the prefix is computed there too, and both caches
 * serve it. */
#include "head/routing/route.h"

#include "common/base/clock.h"
#include "head/request/request.h"
#include "head/routing/kv_compat.h"
#include "head/routing/promises.h"

/* STALE_NS is the age from which a measured speed is not used, since the replica had nothing to
 * do. The mean speed replaces it, so that a replica that was slow once is tried again. */
#define STALE_NS (10 * NS_PER_S)
/* SAME_COST is the factor within which costs count as equal. The replica that has waited longest
 * for a request then gets it, so that all caches are used. */
#define SAME_COST 1.05

enum { ENDS_REMEMBERED = 64 };

static bool is_fresh(const struct head_core *h, const struct engine_slot *l)
{
    return l->time.measured_ns && h->now_ns - l->time.measured_ns < STALE_NS;
}

struct step_speed route_mean_speed(const struct head_core *h)
{
    struct step_speed sum = {0};
    uint32_t n = 0;
    for (uint32_t i = 0; i < h->n_live; i++) {
        const struct engine_slot *l = &h->engine_slots[h->live[i]];
        if (!is_fresh(h, l))
            continue;
        struct step_speed s = step_time_speed(&l->time);
        sum.base_ns += s.base_ns;
        sum.token_ns += s.token_ns;
        n++;
    }
    return n ? (struct step_speed){sum.base_ns / n, sum.token_ns / n} : sum;
}

/* Returns the remaining time of the steps in flight, ns. An overdue step is expected to need as
 * much more time as it is late already. */
static double in_flight_ns(const struct head_core *h, const struct engine_slot *l,
                           struct step_speed s)
{
    double want = 0, passed = (double)(h->now_ns - l->activity_ns);
    if (l->last_result == l->last_step)
        return 0;
    for (uint64_t step = l->last_result + 1; step <= l->last_step; step++) {
        double ns = s.base_ns + s.token_ns * l->n_tokens[step % ENGINE_SLOT_STEPS];
        if (want == 0 && passed > ns) /* the oldest step is overdue */
            ns = 2 * passed - ns;
        want += ns;
    }
    return want - passed;
}

/* Returns how many sequences must end before one more, with n_new tokens to compute, can run. */
static uint32_t ends_before(const struct scheduler_load *l, uint32_t n_new)
{
    uint32_t n = l->waiting + 1;
    if (l->n_prompt_tokens + n_new > l->n_free_tokens)
        return n;
    return n > l->n_free_slots ? n - l->n_free_slots : 0;
}

/* Returns the expected time until the first token if n_new tokens of the prompt are computed,
 * ns. It grows with n_new. */
static double cost_ns(const struct head_core *h, const struct route *x, uint32_t n_new)
{
    const struct scheduler_load *l = &x->load;
    uint64_t n_tokens = l->n_prompt_tokens + n_new;
    uint64_t n_steps = 1 + n_tokens / h->config.max_num_batched_tokens;
    uint64_t n_rows = (uint64_t)l->running + l->waiting;
    double ns = x->flight_ns + x->answer_ns + x->speed.base_ns * (double)n_steps +
                x->speed.token_ns * ((double)n_tokens + (double)n_steps * (double)n_rows);
    uint32_t n_ends = ends_before(l, n_new);
    if (n_ends > 0)
        ns += n_ends * step_time_between_ends_ns(&x->engine_slot->time, l->running);
    return ns;
}

/* Returns the time for n_tokens of an answer, one in each step beside all other rows, ns. */
static double answer_ns(const struct route *x, double n_tokens)
{
    double n_rows = 1.0 + x->load.running + x->load.waiting;
    return n_tokens * (x->speed.base_ns + x->speed.token_ns * n_rows);
}

/* Returns true when a suspect runs in the slot. With two suspects in one replica, the head could
 * not find out which of them caused a loss. */
static bool has_suspect(const struct head_core *h, const struct engine_slot *l)
{
    const struct request *r = request_table_find(h->requests, l->suspect, l->suspect_choice);
    return r && r->i_replica == l->replica->index && r->finish == FINISH_NONE &&
           request_is_suspect(r);
}

/* Returns true when the request fits into the replica. A request longer than the model allows is
 * first cut to that length (admission.c). */
static bool is_room(const struct replica *g, const struct request *r, uint32_t most_tokens)
{
    return (r->ids_cap < g->max_model_len ? r->ids_cap : g->max_model_len) <= most_tokens;
}

static bool has_room(const struct engine_slot *l, const struct request *r)
{
    return is_room(l->replica, r, l->most_tokens);
}

bool route_awaits_room(const struct head_core *h, const struct request *r)
{
    for (uint32_t i = 0; i < h->n_live; i++) {
        if (has_room(&h->engine_slots[h->live[i]], r))
            return false;
    }
    return true;
}

bool route_may_have_room(const struct head_core *h, const struct request *r)
{
    for (uint32_t i = 0; i < h->config.cluster.max_replicas; i++) {
        const struct replica *g = h->cluster.replicas[i];
        if (g && (g->most_tokens == 0 || is_room(g, r, g->most_tokens)))
            return true;
    }
    return false;
}

static bool takes(const struct head_core *h, const struct engine_slot *l, const struct request *r)
{
    return !l->replica->draining && has_room(l, r) &&
           request_may_be_tried(r, h->calm_since_ns, h->now_ns) &&
           !(request_is_suspect(r) && has_suspect(h, l));
}

/* Returns true when all replicas that accept requests are decode replicas. They then compute
 * prompts too. */
static bool only_decodes(const struct head_core *h)
{
    for (uint32_t i = 0; i < h->n_live; i++) {
        const struct engine_slot *l = &h->engine_slots[h->live[i]];
        if (!l->replica->draining && l->role != REPLICA_DECODE)
            return false;
    }
    return true;
}

static bool takes_prompts(const struct head_core *h, const struct engine_slot *l)
{
    return l->role != REPLICA_DECODE || only_decodes(h);
}

/* Returns true when `l` may take `r`. `from` is the slot in which `r` runs, so that another slot
 * is needed; NULL = none. */
static bool is_route(const struct head_core *h, const struct engine_slot *l,
                     const struct request *r, const struct engine_slot *from, bool decodes_prompts)
{
    if (!takes(h, l, r))
        return false;
    if (!from && promises_shut(h, l, r))
        return false;
    if (!from)
        return l->role != REPLICA_DECODE || decodes_prompts;
    return l != from && l->replica->vocab_size == from->replica->vocab_size &&
           scheduler_fits(l->scheduler, r);
}

/* Returns the load of a slot, including requests that are moving there. */
static struct scheduler_load load_of(const struct engine_slot *l)
{
    struct scheduler_load load;
    scheduler_get_load(l->scheduler, &load);
    load.waiting += l->n_coming;
    load.n_prompt_tokens += l->n_coming_tokens;
    return load;
}

/* Lists every engine slot that can take the request, with a lower bound of its cost. */
static uint32_t list_routes(struct head_core *h, const struct request *r,
                            const struct engine_slot *from)
{
    bool decodes_prompts = only_decodes(h);
    double n_answer = r->ids_cap - r->n_ids;
    n_answer = n_answer < h->mean_generated ? n_answer : h->mean_generated;
    n_answer = n_answer < ROUTE_ANSWER_TOKENS ? n_answer : ROUTE_ANSWER_TOKENS;
    struct step_speed mean = route_mean_speed(h);
    uint32_t n = 0;
    for (uint32_t i = 0; i < h->n_live; i++) {
        struct engine_slot *l = &h->engine_slots[h->live[i]];
        if (!is_route(h, l, r, from, decodes_prompts))
            continue;
        struct route *x = &h->routes[n++];
        bool stale = mean.token_ns > 0 && !is_fresh(h, l) && l->last_result == l->last_step;
        *x = (struct route){.engine_slot = l, .speed = stale ? mean : step_time_speed(&l->time)};
        x->load = load_of(l);
        x->flight_ns = in_flight_ns(h, l, x->speed);
        x->answer_ns = answer_ns(x, n_answer);
        x->cost_ns = cost_ns(h, x, 1);
    }
    return n;
}

static double look_up(struct head_core *h, struct request *r, struct route *x)
{
    uint32_t n_hit = scheduler_cached_tokens(x->engine_slot->scheduler, r);
    return x->cost_ns = cost_ns(h, x, r->n_ids - n_hit);
}

/* Returns the slot of the last request if `r` is another choice of the same prompt. All choices
 * arrive together, before anything of the prompt is planned. */
static struct engine_slot *engine_slot_of_last(struct head_core *h, const struct request *r)
{
    const struct last_route *last = &h->last_route;
    if (!last->epoch || last->id.lo != r->id.lo || last->id.hi != r->id.hi ||
        last->i_prompt != r->sampling.i_prompt)
        return NULL;
    struct engine_slot *l = &h->engine_slots[last->i_replica];
    if (!l->scheduler || l->replica->epoch != last->epoch || !takes(h, l, r) ||
        !takes_prompts(h, l) || promises_shut(h, l, r))
        return NULL;
    struct scheduler_load load = load_of(l);
    return ends_before(&load, 1) == 0 ? l : NULL;
}

/* Returns the slot with the lowest cost. Looks up the prefix only where the load alone does not
 * already decide. */
static struct engine_slot *soonest(struct head_core *h, struct request *r)
{
    uint32_t n = list_routes(h, r, NULL), i_first = 0;
    if (n < 2)
        return n ? h->routes[0].engine_slot : NULL;
    for (uint32_t i = 1; i < n; i++)
        i_first = h->routes[i].cost_ns < h->routes[i_first].cost_ns ? i : i_first;
    double least = look_up(h, r, &h->routes[i_first]);
    for (uint32_t i = 0; i < n; i++) {
        if (i == i_first || h->routes[i].cost_ns > least * SAME_COST)
            continue;
        double cost = look_up(h, r, &h->routes[i]);
        least = cost < least ? cost : least;
    }
    struct engine_slot *best = NULL;
    for (uint32_t i = 0; i < n; i++) {
        const struct route *x = &h->routes[i];
        if (x->cost_ns <= least * SAME_COST &&
            (!best || x->engine_slot->placed_seq < best->placed_seq))
            best = x->engine_slot;
    }
    return best;
}

struct engine_slot *route_find(struct head_core *h, struct request *r)
{
    struct engine_slot *l = engine_slot_of_last(h, r);
    if (!l)
        l = soonest(h, r);
    if (l)
        r->n_hit = scheduler_cached_tokens(l->scheduler, r);
    return l;
}

bool route_takes(struct head_core *h, struct request *r, struct engine_slot *l)
{
    if (!takes(h, l, r) || !takes_prompts(h, l))
        return false;
    r->n_hit = scheduler_cached_tokens(l->scheduler, r);
    return true;
}

/* Returns how well a slot fits; higher is better. The slot fits when its role suits and no
 * blocks are moving to or from it. */
static int fitness(const struct route *x)
{
    return 2 * (x->engine_slot->role != REPLICA_PREFILL) + !x->engine_slot->transfer;
}

struct engine_slot *route_find_move(struct head_core *h, const struct request *r,
                                    const struct engine_slot *from, bool any_role)
{
    const struct route *best = NULL;
    uint32_t n = list_routes(h, r, from);
    for (uint32_t i = 0; i < n; i++) {
        const struct route *x = &h->routes[i];
        if (ends_before(&x->load, r->n_ids) > 0 ||
            (!any_role && (x->engine_slot->role == REPLICA_PREFILL ||
                           transfer_way(from->replica, x->engine_slot->replica) != TRANSFER_WAY)))
            continue;
        if (!best || fitness(x) > fitness(best) ||
            (fitness(x) == fitness(best) && x->cost_ns < best->cost_ns))
            best = x;
    }
    return best ? best->engine_slot : NULL;
}

/* Returns the expected speed of this slot. It is the mean of the slots with recent results when
 * this slot has none. */
struct step_speed route_speed(const struct head_core *h, const struct engine_slot *l)
{
    struct step_speed mean = route_mean_speed(h);
    bool stale = mean.token_ns > 0 && !is_fresh(h, l);
    return stale ? mean : step_time_speed(&l->time);
}

void route_placed(struct head_core *h, const struct request *r, struct engine_slot *l)
{
    h->last_route = (struct last_route){.id = r->id,
                                        .i_prompt = r->sampling.i_prompt,
                                        .epoch = l->replica->epoch,
                                        .i_replica = l->replica->index};
    l->placed_seq = ++h->n_placed;
    if (request_is_suspect(r)) {
        l->suspect = r->id;
        l->suspect_choice = r->i_choice;
    }
}

void route_ended(struct head_core *h, const struct request *r)
{
    h->mean_generated += (request_n_generated(r) - h->mean_generated) / ENDS_REMEMBERED;
}
