/* Explores the worlds of world.h in three ways (explore.h). The tests call explore_all,
 * explore_bounded or explore_random with a configuration and get counts and the longest
 * recovery. A search keeps the path of actions to its present world, and the hashes of all
 * visited states (fingerprint.c). It cannot undo an action: to go back, it makes a new world and
 * replays the path.
 * A path has at most DEPTH_MAX actions. The first violation prints the path and ends the search
 * with ok = false. Random choices come from the given seed only. One thread runs the search. */
#include "tests/model/explore.h"

#include <stdio.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/base/random.h"

#define DEPTH_MAX    4096u
#define CLOSURE_MAX  4000u
#define CLOSURE_EACH 64u /* one state in this many is also followed to its end without faults */

/* ---- the set of visited states ---- */

struct seen {
    uint64_t *at;
    uint64_t n, cap;
};

static bool seen_put(uint64_t *at, uint64_t cap, uint64_t v)
{
    uint64_t i = v & (cap - 1);
    while (at[i] != 0 && at[i] != v)
        i = (i + 1) & (cap - 1);
    bool is_new = at[i] == 0;
    at[i] = v;
    return is_new;
}

static bool seen_add(struct seen *s, uint64_t v)
{
    v += v == 0;
    if (2 * s->n >= s->cap) {
        uint64_t cap = s->cap ? 2 * s->cap : 1024;
        uint64_t *at = mem_array(cap, sizeof *at);
        for (uint64_t i = 0; i < s->cap; i++) {
            if (s->at[i] != 0)
                seen_put(at, cap, s->at[i]);
        }
        mem_free(s->at);
        s->at = at;
        s->cap = cap;
    }
    bool is_new = seen_put(s->at, s->cap, v);
    s->n += is_new;
    return is_new;
}

static bool seen_has(const struct seen *s, uint64_t v)
{
    v += v == 0;
    for (uint64_t i = v & (s->cap - 1); s->cap > 0 && s->at[i] != 0; i = (i + 1) & (s->cap - 1)) {
        if (s->at[i] == v)
            return true;
    }
    return false;
}

/* ---- paths ---- */

struct path {
    struct action at[DEPTH_MAX];
    uint32_t n;
};

static void print_violation(const struct world *w, const struct path *p)
{
    char text[48];
    printf("VIOLATION: %s\n", world_violation(w));
    for (uint32_t i = 0; i < p->n; i++) {
        action_text(p->at[i], text);
        printf("%4u %s\n", i + 1, text);
    }
    fflush(stdout);
}

static struct world *replay(const struct world_config *c, const struct path *p, uint32_t n)
{
    struct world *w = world_new(c);
    for (uint32_t i = 0; i < n; i++)
        world_apply(w, p->at[i]);
    return w;
}

static void count_end(struct explore_result *out, const struct world *w)
{
    out->n_ends++;
    uint64_t took = world_recovery_ns(w);
    out->max_recovery_ns = took > out->max_recovery_ns ? took : out->max_recovery_ns;
}

/* Continues from `w` without faults, with random choices, until no action is possible any more. */
static bool run_to_end(struct world *w, struct path *p, struct rng *rng, struct explore_result *out)
{
    struct action list[WORLD_ACTIONS_MAX];
    uint32_t limit = p->n + CLOSURE_MAX < DEPTH_MAX ? p->n + CLOSURE_MAX : DEPTH_MAX;
    while (!world_is_stable(w)) {
        uint32_t n = world_enabled(w, list), n_progress = 0;
        while (n_progress < n && list[n_progress].kind < ACT_FAULTS)
            n_progress++;
        if (n_progress == 0 || p->n == limit) {
            print_violation(w, p);
            world_print(w);
            printf("no end after %u actions without a fault\n", p->n);
            return false;
        }
        p->at[p->n] = list[rng_below(rng, n_progress)];
        out->n_actions++;
        if (!world_apply(w, p->at[p->n++])) {
            print_violation(w, p);
            return false;
        }
    }
    count_end(out, w);
    return true;
}

/* ---- every interleaving ---- */

struct level {
    struct action list[WORLD_ACTIONS_MAX];
    uint32_t n, next;
    uint32_t n_delays; /* deviations taken on the way here */
    uint64_t state;
};

struct search {
    const struct world_config *c;
    struct explore_result out;
    struct seen seen;
    struct level *levels; /* array of DEPTH_MAX levels */
    struct path path;
    struct world *world; /* the state after path.at[0..at) */
    uint32_t at;
    struct rng rng;
};

static void go_to(struct search *s, uint32_t depth)
{
    if (s->world && s->at == depth)
        return;
    if (s->world)
        world_free(s->world);
    s->world = replay(s->c, &s->path, depth);
    s->at = depth;
    s->out.n_replays++;
}

/* Enters a new state, which the world is in. Returns false when the search must end. */
static bool enter_state(struct search *s)
{
    s->out.n_states++;
    if (world_is_stable(s->world))
        count_end(&s->out, s->world);
    struct level *l = &s->levels[s->path.n];
    l->n = world_enabled(s->world, l->list);
    l->next = 0;
    if (s->path.n > s->out.depth)
        s->out.depth = s->path.n;
    if (s->out.n_states % CLOSURE_EACH != 0)
        return true;
    uint32_t depth = s->path.n;
    bool ok = run_to_end(s->world, &s->path, &s->rng, &s->out);
    s->path.n = depth;
    s->at = UINT32_MAX; /* the world has moved on, and is rebuilt before the next step */
    return ok;
}

static bool search_step(struct search *s)
{
    struct level *l = &s->levels[s->path.n];
    go_to(s, s->path.n);
    s->path.at[s->path.n] = l->list[l->next++];
    s->out.n_actions++;
    bool ok = world_apply(s->world, s->path.at[s->path.n]);
    s->path.n++;
    s->at++;
    if (!ok) {
        print_violation(s->world, &s->path);
        return false;
    }
    if (s->path.n + 1 >= DEPTH_MAX || !seen_add(&s->seen, world_fingerprint(s->world))) {
        /* this state was visited before; the world is rebuilt when it is needed again */
        s->path.n--;
        return true;
    }
    return enter_state(s);
}

struct explore_result explore_all(const struct world_config *c, uint64_t max_states)
{
    struct search s = {.c = c, .rng = {.state = 1}};
    s.levels = mem_array(DEPTH_MAX, sizeof *s.levels);
    go_to(&s, 0);
    seen_add(&s.seen, world_fingerprint(s.world));
    s.out.ok = enter_state(&s);
    while (s.out.ok && (max_states == 0 || s.out.n_states < max_states)) {
        struct level *l = &s.levels[s.path.n];
        if (l->next < l->n) {
            s.out.ok = search_step(&s);
            continue;
        }
        if (s.path.n == 0) {
            s.out.complete = true;
            break;
        }
        s.path.n--;
    }
    world_free(s.world);
    mem_free(s.levels);
    mem_free(s.seen.at);
    return s.out;
}

/* ---- every deviation from the default path ---- */

struct bounded {
    struct search s;
    const struct explore_bounds *bounds;
};

/* Returns whether the state was entered before with as many delays, or fewer. */
static bool was_entered(struct seen *seen, uint64_t state, uint32_t n_delays)
{
    for (uint32_t n = 0; n < n_delays; n++) {
        if (seen_has(seen, state + n))
            return true;
    }
    return !seen_add(seen, state + n_delays);
}

/* Returns whether the default path from here came back to a state that it had left. */
static bool goes_round(const struct search *s, uint64_t state)
{
    for (uint32_t d = s->path.n; d > 0 && s->levels[d - 1].next == 1; d--) {
        if (s->levels[d - 1].state == state)
            return true;
    }
    return false;
}

static void enter_bounded(struct bounded *b, uint64_t state, uint32_t n_delays)
{
    struct search *s = &b->s;
    struct level *l = &s->levels[s->path.n];
    *l = (struct level){.n_delays = n_delays, .state = state};
    l->n = world_enabled(s->world, l->list);
    s->out.n_states++;
    if (world_is_stable(s->world))
        count_end(&s->out, s->world);
    if (s->path.n > s->out.depth)
        s->out.depth = s->path.n;
}

/* Returns the level's next action to try, or its end when there is none. */
static uint32_t next_way(struct bounded *b, struct level *l)
{
    for (; l->next < l->n; l->next++) {
        uint32_t i = l->next;
        struct rng rng = {.state = l->state ^ (b->bounds->seed << 32) ^ i};
        bool is_delay = i > 0 && l->list[i].kind < ACT_FAULTS;
        bool is_chosen = b->bounds->one_in <= 1 || rng_below(&rng, b->bounds->one_in) == 0;
        if ((i == 0 && l->list[0].kind < ACT_FAULTS) ||
            (is_chosen && (!is_delay || l->n_delays < b->bounds->n_delays)))
            break;
    }
    return l->next++;
}

static bool bounded_step(struct bounded *b, uint32_t way)
{
    struct search *s = &b->s;
    struct level *l = &s->levels[s->path.n];
    uint32_t n_delays = l->n_delays + (way > 0 && l->list[way].kind < ACT_FAULTS);
    go_to(s, s->path.n);
    s->path.at[s->path.n] = l->list[way];
    s->out.n_actions++;
    bool ok = world_apply(s->world, s->path.at[s->path.n]);
    s->path.n++;
    s->at++;
    uint64_t state = world_fingerprint(s->world);
    bool has_end = s->path.n + 1 < DEPTH_MAX && !goes_round(s, state);
    if (!ok || !has_end) {
        print_violation(s->world, &s->path);
        world_print(s->world);
        printf(ok ? "this way has no end\n" : "\n");
        return false;
    }
    if (was_entered(&s->seen, state, n_delays))
        s->path.n--;
    else
        enter_bounded(b, state, n_delays);
    return true;
}

struct explore_result explore_bounded(const struct world_config *c, const struct explore_bounds *eb)
{
    struct bounded b = {.s = {.c = c}, .bounds = eb};
    struct search *s = &b.s;
    s->levels = mem_array(DEPTH_MAX, sizeof *s->levels);
    go_to(s, 0);
    enter_bounded(&b, world_fingerprint(s->world), 0);
    s->out.ok = true;
    while (s->out.ok) {
        struct level *l = &s->levels[s->path.n];
        uint32_t way = next_way(&b, l);
        if (way < l->n) {
            s->out.ok = bounded_step(&b, way);
            continue;
        }
        if (s->path.n == 0)
            break;
        s->path.n--;
    }
    s->out.complete = s->out.ok && eb->one_in <= 1;
    world_free(s->world);
    mem_free(s->levels);
    mem_free(s->seen.at);
    return s->out;
}

/* ---- random walks ---- */

static bool walk(const struct world_config *c, struct rng *rng, struct path *p,
                 struct explore_result *out)
{
    struct world *w = world_new(c);
    struct action list[WORLD_ACTIONS_MAX];
    uint32_t n_steps = 20 + (uint32_t)rng_below(rng, 300);
    bool ok = true;
    p->n = 0;
    while (ok && p->n < n_steps) {
        uint32_t n = world_enabled(w, list), n_progress = 0;
        while (n_progress < n && list[n_progress].kind < ACT_FAULTS)
            n_progress++;
        if (n == 0)
            break;
        bool fault = n > n_progress && (n_progress == 0 || rng_below(rng, 12) == 0);
        p->at[p->n] = fault ? list[n_progress + rng_below(rng, n - n_progress)]
                            : list[rng_below(rng, n_progress)];
        out->n_actions++;
        out->n_states++;
        ok = world_apply(w, p->at[p->n++]);
        if (!ok)
            print_violation(w, p);
    }
    ok = ok && run_to_end(w, p, rng, out);
    if (p->n > out->depth)
        out->depth = p->n;
    world_free(w);
    return ok;
}

struct explore_result explore_random(const struct world_config *c, uint64_t seed, uint32_t n_walks)
{
    struct explore_result out = {.ok = true};
    struct path *p = mem_alloc(sizeof *p);
    for (uint32_t i = 0; i < n_walks && out.ok; i++) {
        struct rng rng = {.state = seed + i};
        out.ok = walk(c, &rng, p, &out);
        if (!out.ok)
            printf("seed %llu, %u requests, %u tokens, %u faults\n", (unsigned long long)(seed + i),
                   c->n_requests, c->n_tokens, c->n_faults);
    }
    mem_free(p);
    return out;
}
