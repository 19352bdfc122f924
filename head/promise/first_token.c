/* Replays the steps until a request's first token. `first_token_ns` is called by
 * routing/promises.c with what scheduler/outlook.c has gathered.
 *
 * A replay keeps the prompts that are partly computed in `active`, the request itself last.
 * Prompts in front of it enter `active` with their mean size. Numbers of decodes and of free
 * slots are fractions, because only the mean time until an answer ends is known.
 *
 * Invariants: the code is pure and allocates nothing. Each replayed step costs O(active), which
 * is bounded by FIRST_TOKEN_PROMPTS. */
#include "head/promise/first_token.h"

struct active {
    double n_left, start, n_size;
    bool is_own;
};

struct replay {
    const struct first_token_work *w;
    struct step_budget budget; /* a copy, since each step alternates its size */
    struct active active[FIRST_TOKEN_PROMPTS + 1];
    uint32_t n_active;
    double n_ahead, size_ahead; /* waiting prompts in front, and their mean size */
    bool own_waits;
    double n_decodes, n_context, n_free_slots, n_free_tokens;
    double n_later; /* tokens that arrived behind the request until the step is planned */
};

/* Holds one replayed step. */
struct step {
    double any, rows; /* prompt tokens that are left, by time and by rows of the plan */
    double n_done;    /* prompts that end in the step */
    double n_prompt, n_context;
    bool own_ends;
};

static double least(double a, double b)
{
    return a < b ? a : b;
}

static double positive(double x)
{
    return x > 0 ? x : 0;
}

static struct step begin_step(struct replay *r)
{
    const struct first_token_work *w = r->w;
    const double n_each = w->n_each;
    const uint32_t n_sampled = (uint32_t)(r->n_decodes * n_each + 0.5);
    uint32_t any = step_budget_prompt_tokens_within(&r->budget, n_sampled, w->longest_ns);
    r->budget.n_results++;
    return (struct step){.any = any, .rows = positive(w->n_rows_max - r->n_decodes * n_each)};
}

/* Lets a prompt compute as much as fits. */
static void run_prompt(struct replay *r, struct step *s, struct active *a)
{
    double n = least(least(a->n_left, s->any), s->rows);
    if (r->w->chunk > 0)
        n = least(n, r->w->chunk);
    s->any -= n;
    s->rows -= n;
    s->n_prompt += n;
    s->n_context += n * (a->start + n / 2);
    a->n_left -= n;
    a->start += n;
    if (a->n_left > 0.5)
        return;
    a->n_left = 0;
    s->n_done++;
    s->own_ends |= a->is_own;
    s->any = positive(s->any - step_budget_tokens_of_sampled(&r->budget));
}

static bool may_enter(const struct replay *r, const struct step *s, double size)
{
    const uint32_t most = r->w->n_partial_max;
    return s->any >= 1 && s->rows >= 1 && r->n_free_slots >= 1 && r->n_free_tokens >= size &&
           r->n_active < FIRST_TOKEN_PROMPTS && (most == 0 || r->n_active < most || size <= s->any);
}

static void enter(struct replay *r, struct step *s, struct active a)
{
    r->n_free_slots--;
    r->n_free_tokens -= a.n_left;
    r->active[r->n_active] = a;
    run_prompt(r, s, &r->active[r->n_active++]);
}

/* Admits waiting prompts, those in front of the request first. */
static void admit(struct replay *r, struct step *s)
{
    const struct first_token_prompt *own = &r->w->own;
    while (r->n_ahead >= 0.5 && may_enter(r, s, r->size_ahead)) {
        r->n_ahead--;
        enter(r, s, (struct active){.n_left = r->size_ahead, .n_size = r->size_ahead});
    }
    if (r->n_ahead < 0.5 && r->own_waits && may_enter(r, s, own->n_left)) {
        r->own_waits = false;
        enter(r, s,
              (struct active){.n_left = own->n_left,
                              .start = own->start,
                              .n_size = own->start + own->n_left,
                              .is_own = true});
    }
}

/* Lets requests that came behind the request use what is left of a step. */
static void admit_later(struct replay *r, struct step *s)
{
    const struct first_token_work *w = r->w;
    double n = least(least(r->n_later, s->any), s->rows);
    if (r->own_waits || !(n > 0))
        return;
    double n_requests = n * w->later_requests / w->later_tokens;
    r->n_later -= n;
    s->n_prompt += n;
    s->n_done += n_requests;
    s->n_context += n * n / (2 * (n_requests > 1 ? n_requests : 1));
}

/* Returns the work of the step, and updates the decodes for the next one. */
static struct step_work end_step(struct replay *r, const struct step *s)
{
    const struct first_token_work *w = r->w;
    struct step_work work = {.n_rows = r->n_decodes * w->n_each + s->n_done,
                             .n_tokens = positive(s->n_prompt - s->n_done),
                             .n_context = r->n_context + s->n_context};
    const double n_ends = r->n_decodes / (w->mean_answer > 1 ? w->mean_answer : 1);
    const double mean_context = r->n_decodes > 0 ? r->n_context / r->n_decodes : 0;
    r->n_free_slots += n_ends;
    r->n_free_tokens += n_ends * w->n_tokens_per_end;
    r->n_context += r->n_decodes - n_ends * mean_context;
    r->n_decodes += s->n_done - n_ends;
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->n_active; i++) {
        if (r->active[i].n_left > 0)
            r->active[n++] = r->active[i];
        else
            r->n_context += r->active[i].n_size;
    }
    r->n_active = n;
    return work;
}

static double tokens_in_front(const struct replay *r)
{
    double n = r->n_ahead * r->size_ahead + (r->own_waits ? r->w->own.n_left : 0);
    for (uint32_t i = 0; i < r->n_active; i++)
        n += r->active[i].n_left;
    return n;
}

static void begin(struct replay *r, const struct first_token_work *w)
{
    *r = (struct replay){.w = w,
                         .budget = *w->budget,
                         .n_ahead = w->n_ahead,
                         .size_ahead = w->n_ahead > 0 ? w->n_ahead_tokens / w->n_ahead : 0,
                         .own_waits = true,
                         .n_decodes = w->n_decodes,
                         .n_context = w->n_context,
                         .n_free_slots = w->n_free_slots,
                         .n_free_tokens = w->n_free_tokens};
    r->size_ahead = r->size_ahead > 1 ? r->size_ahead : 1;
    for (uint32_t i = 0; i < w->n_running && i < FIRST_TOKEN_PROMPTS; i++)
        r->active[r->n_active++] =
            (struct active){.n_left = w->running[i].n_left,
                            .start = w->running[i].start,
                            .n_size = w->running[i].start + w->running[i].n_left};
}

/* Replays the prompts of one step. */
static struct step run_prompts(struct replay *r)
{
    struct step s = begin_step(r);
    for (uint32_t k = 0; k < r->n_active; k++)
        run_prompt(r, &s, &r->active[k]);
    admit(r, &s);
    return s;
}

bool first_token_is_next(const struct first_token_work *w)
{
    struct replay r;
    begin(&r, w);
    (void)run_prompts(&r);
    return !r.own_waits;
}

double first_token_ns(const struct first_token_work *w, const struct step_cost *cost,
                      const struct first_token_flight *flight)
{
    struct replay r;
    double t = 0, planned = 0, previous = 0;
    begin(&r, w);
    for (uint32_t i = 0; i < flight->n && i < FIRST_TOKEN_FLIGHT; i++)
        t += flight->left_ns[i];
    /* the next plan is made when fewer steps than `depth` are in flight */
    if (flight->n >= w->depth && flight->n > 0)
        planned = flight->left_ns[0];
    const double before = tokens_in_front(&r), begins = t;
    for (uint32_t i = 0; i < FIRST_TOKEN_STEPS; i++) {
        r.n_later += w->later_tokens * (planned - previous);
        previous = planned;
        struct step s = run_prompts(&r);
        admit_later(&r, &s);
        const struct step_work work = end_step(&r, &s);
        planned = w->depth > 1 ? t : t + step_cost_ns(cost, &work);
        t += step_cost_ns(cost, &work);
        if (s.own_ends)
            return t;
    }
    const double done = before - tokens_in_front(&r);
    return begins + (t - begins) * before / (done > 1 ? done : 1);
}
