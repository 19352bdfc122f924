/* Plays a minimal scheduler that keeps the contract of `blocks`. blocks_test.c and a fuzzer call
 * `blocks_play` with bytes. The bytes choose which request arrives, which sequence runs how far,
 * which one leaves, and how late results are. Each call of `blocks` is followed by a check of
 * the model (`blocks_model.h`). Invariants: at most MODEL_DEPTH steps are in flight, and a
 * sequence that is alone can always run. One thread plays, and the only `struct model` is
 * static. */
#include <string.h>

#include "tests/unit/head/kv/blocks_model.h"

struct input {
    const uint8_t *at, *end;
};

static uint32_t take_byte(struct input *in)
{
    return in->at < in->end ? *in->at++ : 0;
}

static uint32_t draw(struct input *in, uint32_t low, uint32_t high)
{
    return low + take_byte(in) % (high - low + 1);
}

/* ---- worlds ---- */

static bool open_world(struct model *m, struct input *in)
{
    static const uint32_t sizes[] = {16, 16, 16, 16, 32, 48, 64, 16};
    memset(m, 0, sizeof *m);
    uint32_t flags = take_byte(in), few = take_byte(in) % 9;
    m->c = (struct blocks_config){.n_groups = draw(in, 1, MODEL_GROUPS),
                                  .groups = m->groups,
                                  .max_model_len = MODEL_LEN,
                                  .max_seqs = MODEL_SEQS,
                                  .caching = !(flags & 1)};
    m->depth = 1 + (flags >> 1 & 3);
    m->n_draft = flags & 8 ? 1 + (flags >> 4 & 7) : 0;
    m->c.max_chunk = draw(in, m->n_draft + 1, 80);
    for (uint32_t g = 0; g < m->c.n_groups; g++) {
        struct kv_group *k = &m->groups[g];
        uint32_t kind = take_byte(in);
        *k = (struct kv_group){.kind = kind & 1 ? KV_WINDOW : KV_FULL,
                               .block_tokens = sizes[flags & 128 ? kind >> 1 & 7 : 0],
                               .window_tokens = draw(in, 1, 100),
                               .n_blocks = 1 + draw(in, few, few ? 15 : MODEL_BLOCKS - 1)};
    }
    return blocks_new(&m->c, &m->b, &m->err) == STATUS_OK;
}

static void forget_request(struct model_seq *x)
{
    arena_fini(&x->r.arena);
    *x = (struct model_seq){.slot = x->slot};
}

/* Adds a request. Its prompt is the beginning of one of a few texts, which differ from a
 * position that the bytes choose. It can also repeat the last prompt, as another choice or as a
 * new request. */
static void new_request(struct model *m, struct input *in)
{
    struct model_seq *x = NULL;
    struct model_prompt *p = &m->prompt;
    uint32_t about = take_byte(in);
    if (!(about & 1) || p->n == 0)
        *p = (struct model_prompt){draw(in, 1, about & 64 ? MODEL_LEN - 2 : 60), take_byte(in),
                                   about >> 1 & 1, (about & 12) == 12, (about & 48) == 48};
    if (!(about & 1) || about & 2)
        m->n_requests++;
    for (uint32_t i = 0; i < MODEL_SEQS; i++)
        x = m->seqs[i].used ? x : &m->seqs[i];
    if (!x)
        return;
    uint32_t room = MODEL_LEN - p->n;
    *x = (struct model_seq){.used = true, .slot = (uint32_t)(x - m->seqs)};
    x->r = (struct request){.id = {1, m->n_requests},
                            .salt = {p->salt, 0},
                            .sampling = {.n_prompt_logprobs = (about & 0x70) == 0x70 ? 0 : -1,
                                         .lora = p->lora ? STR("a") : STR("")},
                            .ids = x->ids,
                            .n_prompt = p->n,
                            .n_ids = p->n,
                            .ids_cap = p->n + draw(in, 1, room < 40 ? room : 40)};
    arena_init(&x->r.arena, 0);
    for (uint32_t i = 0; i < p->n; i++)
        x->ids[i] = i < p->parts_at ? 100 : 200 + p->which;
    x->n_total = x->r.n_ids;
    if (!blocks_fit_alone(m->b, x->r.ids_cap - 1) || !blocks_hash(m->b, &x->r)) {
        forget_request(x);
        return;
    }
    blocks_init_tables(m->b, x->tables, x->table_ids, x->r.ids_cap);
}

static void leave(struct model *m, struct model_seq *x)
{
    blocks_release(m->b, x->tables);
    memset(x->told, 0, sizeof x->told);
    x->running = x->tail_shared = false;
    x->n_scheduled = x->n_untold = x->enter_at = 0;
    model_look(m);
}

static void end_request(struct model *m, struct model_seq *x)
{
    if (x->running)
        leave(m, x);
    x->ended = true;
    if (x->n_refs == 0)
        forget_request(x);
}

static uint32_t n_running(const struct model *m)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < MODEL_SEQS; i++)
        n += m->seqs[i].running;
    return n;
}

/* ---- a plan ---- */

static struct model_step *step_of(struct model *m, uint64_t step)
{
    return &m->steps[step % MODEL_DEPTH];
}

static uint32_t furthest(const struct model_seq *x, uint32_t n_tokens, uint32_t n_draft)
{
    uint32_t end = x->n_scheduled + x->n_ahead + n_tokens + n_draft;
    return end < x->r.ids_cap - 1 ? end : x->r.ids_cap - 1;
}

static void add_run(struct model *m, struct model_seq *x, uint32_t n_tokens, uint32_t n_draft,
                    bool prompt)
{
    struct model_step *s = step_of(m, m->step_sent + 1);
    struct plan_blocks out[MODEL_GROUPS];
    uint32_t end = furthest(x, n_tokens, n_draft), before[MODEL_GROUPS];
    for (uint32_t g = 0; g < m->c.n_groups; g++)
        before[g] = x->tables[g].n;
    uint32_t n = blocks_extend(m->b, x->tables, x->slot, x->n_scheduled, end, out);
    for (uint32_t g = 0; g < m->c.n_groups; g++)
        model_handed_out(m, g, x->tables[g].ids + before[g], x->tables[g].n - before[g]);
    model_told(m, x, end, out, n);
    uint32_t i = s->n_runs;
    if (!prompt) { /* decodes precede prompts */
        i = s->n_decodes++;
        memmove(&s->runs[i + 1], &s->runs[i], (s->n_runs - i) * sizeof *s->runs);
    }
    s->n_runs++;
    s->runs[i] = (struct model_run){.seq = x,
                                    .start = x->n_scheduled,
                                    .n_tokens = n_tokens,
                                    .n_draft = n_draft,
                                    .incarnation = x->incarnation,
                                    .sample = x->n_scheduled + n_tokens == x->n_total,
                                    .follows = x->n_ahead > 0};
    memcpy(s->runs[i].tables, x->told, sizeof x->told);
    x->n_scheduled += n_tokens;
    x->n_total += s->runs[i].sample;
    x->n_pending += s->runs[i].sample;
    x->n_ahead += n_draft;
    x->n_refs++;
    x->has_run = true;
    x->n_untold = 0;
    model_look(m);
    if (!prompt)
        return;
    uint32_t n_known = x->n_scheduled < x->r.n_ids ? x->n_scheduled : x->r.n_ids;
    x->enter_at = blocks_enter(m->b, x->tables, &x->r, n_known);
    if (x->n_total - x->n_scheduled <= 1)
        blocks_settle(m->b, x->tables);
    model_look(m);
}

static bool is_alone(const struct model *m, const struct model_seq *x)
{
    for (uint32_t i = 0; i < MODEL_MOVES; i++)
        if (m->moves[i].used) /* a sequence may have to wait for the move */
            return false;
    return n_running(m) == (x->running ? 1 : 0) && m->step_sent == m->step_done;
}

/* Preempts sequences that have not run in this plan until the blocks fit. `x` itself is the last
 * sequence to be preempted. */
static bool make_room(struct model *m, struct model_seq *x, uint32_t end)
{
    enum blocks_fit fit;
    while ((fit = blocks_fit(m->b, x->tables, x->n_scheduled, end)) == BLOCKS_FIT_NOT) {
        struct model_seq *victim = x;
        HOLD(m, !is_alone(m, x) || x->n_untold > 0); /* otherwise the sequence could never run */
        for (uint32_t i = 0; i < MODEL_SEQS; i++)
            if (m->seqs[i].running && !m->seqs[i].has_run && &m->seqs[i] != x)
                victim = &m->seqs[i];
        leave(m, victim);
        m->stats.n_preempted++;
        if (victim == x)
            return false;
    }
    m->stats.n_soon += fit == BLOCKS_FIT_SOON;
    return fit == BLOCKS_FIT;
}

static void run_prompt(struct model *m, struct model_seq *x, uint32_t chunk)
{
    uint32_t position = blocks_advance(m->b, x->tables, &x->r, x->n_scheduled);
    m->stats.n_advanced += position - x->n_scheduled;
    x->n_untold += position - x->n_scheduled;
    x->n_scheduled = position;
    model_look(m);
    uint32_t n_left = x->n_total - x->n_scheduled;
    HOLD(m, n_left >= 1 && blocks_covered(m->b, x->tables) >= x->n_scheduled);
    chunk = chunk < n_left ? chunk : n_left;
    if (!m->failed && make_room(m, x, furthest(x, chunk, 0)))
        add_run(m, x, chunk, 0, true);
}

static void run_decode(struct model *m, struct model_seq *x, uint32_t n_draft)
{
    uint32_t room = x->r.ids_cap - 1 - x->n_total;
    n_draft = n_draft < room ? n_draft : room;
    if (make_room(m, x, furthest(x, 1, n_draft)))
        add_run(m, x, 1, n_draft, false);
}

static void admit(struct model *m, struct model_seq *x, uint32_t chunk, bool peek)
{
    struct blocks_hit hit;
    if (x->n_pending)
        return;
    blocks_find(m->b, &x->r, &hit);
    bool fit = blocks_fit_admit(m->b, &hit, x->r.n_ids, n_running(m), false);
    m->stats.n_alone += is_alone(m, x);
    HOLD(m, fit || !is_alone(m, x)); /* otherwise the sequence could never run */
    if (!fit || peek)
        return;
    uint32_t n_copies, n_before;
    (void)blocks_copies(m->b, &n_before);
    uint32_t n_cached = blocks_take(m->b, x->tables, &x->r, &hit);
    const struct plan_copy *copies = blocks_copies(m->b, &n_copies);
    HOLD(m, n_cached < x->r.n_ids && n_cached == hit.n_tokens + hit.n_tail);
    for (uint32_t i = n_before; i < n_copies; i++)
        model_handed_out(m, copies[i].i_group, &copies[i].to, 1);
    m->stats.n_hit_tokens += n_cached;
    m->stats.n_copies += n_copies - n_before;
    x->running = true;
    x->incarnation++;
    x->n_scheduled = n_cached;
    model_look(m);
    uint32_t n_left = x->r.n_ids - n_cached;
    add_run(m, x, chunk < n_left ? chunk : n_left, 0, true);
}

static void plan(struct model *m, struct input *in)
{
    struct model_step *s = step_of(m, m->step_sent + 1);
    if (m->step_sent - m->step_done >= m->depth)
        return;
    s->n_runs = s->n_decodes = 0;
    blocks_begin_step(m->b);
    model_look(m);
    uint32_t order = take_byte(in), skip = take_byte(in) & take_byte(in);
    for (uint32_t i = 0; i < MODEL_SEQS; i++)
        m->seqs[i].has_run = false;
    /* Running sequences are planned first, then waiting ones. */
    for (uint32_t i = 0; i < 2 * MODEL_SEQS && !m->failed; i++) {
        struct model_seq *x = &m->seqs[(i + order) % MODEL_SEQS];
        bool waits = i >= MODEL_SEQS;
        if (!x->used || x->ended || x->has_run || x->running == waits || skip >> i % MODEL_SEQS & 1)
            continue;
        uint32_t chunk = draw(in, 1, m->c.max_chunk), n_left = x->n_total - x->n_scheduled;
        if (waits)
            admit(m, x, chunk, order >= 250);
        else if (n_left > 1)
            run_prompt(m, x, chunk);
        else if (n_left == 1 && x->n_total < x->r.ids_cap)
            run_decode(m, x, m->n_draft);
    }
    const struct plan_copy *copies = blocks_copies(m->b, &s->n_copies);
    HOLD(m, s->n_copies <= MODEL_SEQS * MODEL_GROUPS && (s->n_copies == 0 || s->n_runs > 0));
    if (s->n_runs == 0 || m->failed)
        return; /* an empty plan is not sent */
    memcpy(s->copies, copies, s->n_copies * sizeof *copies);
    blocks_on_sent(m->b, ++m->step_sent);
    model_sent(m);
    m->stats.n_steps++;
}

/* ---- a result ---- */

/* The ranks sample their tokens. Draft tokens that equal the sampled ones are accepted. */
static void take_tokens(struct model *m, const struct model_run *run, uint32_t n_drafted)
{
    struct model_seq *x = run->seq;
    struct request *r = &x->r;
    uint32_t n = 0, start = r->n_ids - 1, n_most = r->ids_cap - r->n_ids;
    bool current = x->running && run->incarnation == x->incarnation;
    x->n_pending--;
    x->n_ahead -= run->n_draft;
    if (n_most == 0) /* an earlier run in flight reached the end */
        return;
    n_drafted = n_drafted < run->n_draft ? n_drafted : run->n_draft;
    for (; n <= n_drafted && n < n_most; n++) {
        r->ids[r->n_ids] = model_sample(m, r);
        r->n_ids++;
    }
    start = run->n_tokens == 1 ? start : run->start;
    model_run(m, run, start, run->n_tokens + n - 1);
    m->stats.n_accepted += n - 1;
    x->n_total += n - 1;
    if (r->n_ids == r->ids_cap) {
        m->stats.n_finished += !x->ended;
        x->ended = true;
        return;
    }
    if (!current) /* the sequence was preempted or cancelled, but the ranks run it all the same */
        return;
    x->n_scheduled += n - 1;
    if (!x->tail_shared)
        blocks_enter_tail(m->b, x->tables, r);
    x->tail_shared = true;
    uint32_t n_known = x->n_scheduled < r->n_ids ? x->n_scheduled : r->n_ids;
    if (n_known >= x->enter_at && m->c.caching)
        x->enter_at = blocks_enter(m->b, x->tables, r, n_known);
}

static void result(struct model *m, struct input *in)
{
    if (m->step_done == m->step_sent)
        return;
    const struct model_step *s = step_of(m, m->step_done + 1);
    uint32_t n_drafted = take_byte(in);
    for (uint32_t i = 0; i < s->n_copies; i++)
        model_copy(m, &s->copies[i]);
    for (uint32_t i = 0; i < s->n_runs && !m->failed; i++) {
        const struct model_run *run = &s->runs[i];
        run->seq->n_refs--;
        if (run->sample)
            take_tokens(m, run, n_drafted >> i & 7);
        else
            model_run(m, run, run->start, run->n_tokens);
        if (run->seq->ended)
            end_request(m, run->seq);
    }
    m->step_done++;
    blocks_on_done(m->b, m->step_done);
    model_look(m);
}

/* ---- moves ---- */

static void forget_move(struct model_move *v)
{
    arena_fini(&v->prefix.arena);
    *v = (struct model_move){0};
}

static void end_move(struct model *m, struct model_move *v)
{
    m->stats.n_let_go_early += v->imports && !v->whole;
    blocks_let_go(m->b, v->parts, v->n);
    forget_move(v);
    model_look(m);
}

/* Returns the number of positions with a result. */
static uint32_t n_computed(const struct model *m, const struct model_seq *x)
{
    uint32_t n = x->n_scheduled;
    for (uint64_t step = m->step_done + 1; step <= m->step_sent; step++) {
        const struct model_step *s = &m->steps[step % MODEL_DEPTH];
        for (uint32_t i = 0; i < s->n_runs; i++)
            if (s->runs[i].seq == x && s->runs[i].incarnation == x->incarnation)
                n -= s->runs[i].n_tokens;
    }
    return n < x->r.n_ids ? n : x->r.n_ids - 1;
}

static bool prepare_move(struct model *m, struct model_move *v, const struct model_seq *x,
                         uint32_t n_tokens)
{
    *v = (struct model_move){.n = blocks_n_parts(m->b, n_tokens)};
    v->prefix = (struct request){.id = x->r.id,
                                 .salt = x->r.salt,
                                 .sampling = x->r.sampling,
                                 .ids = v->ids,
                                 .n_ids = n_tokens,
                                 .ids_cap = n_tokens};
    memcpy(v->ids, x->ids, n_tokens * sizeof *v->ids);
    arena_init(&v->prefix.arena, 0);
    return blocks_hash(m->b, &v->prefix);
}

static void hold(struct model *m, struct model_move *v, const struct model_seq *x, uint32_t less)
{
    uint32_t n = x->running && x->tail_shared ? n_computed(m, x) : 0;
    n = blocks_align(m->b, n > less ? n - less : n);
    if (n == 0 || !prepare_move(m, v, x, n))
        return;
    v->used = blocks_hold(m->b, x->tables, n, v->parts);
    m->stats.n_held += v->used;
    m->stats.n_refused += !v->used;
    model_look(m);
    if (v->used)
        model_moved(m, v, false);
    else
        forget_move(v);
}

/* Imports blocks as if the replica of another table had run this sequence's request. */
static void import(struct model *m, struct model_move *v, const struct model_seq *x, uint32_t less)
{
    uint32_t n = blocks_align(m->b, x->r.n_ids > less ? x->r.n_ids - less : x->r.n_ids);
    if (!m->c.caching || n == 0 || !blocks_may_share(&x->r) || !prepare_move(m, v, x, n))
        return;
    v->used = v->imports = blocks_import(m->b, &v->prefix, n, n_running(m), v->parts);
    m->stats.n_imported += v->used;
    m->stats.n_refused += !v->used;
    for (uint32_t i = 0; v->used && i < v->n; i++)
        if (!v->parts[i].was_there)
            model_handed_out(m, v->parts[i].i_group, &v->parts[i].id, 1);
    model_look(m);
    if (!v->used)
        forget_move(v);
}

static void move(struct model *m, struct input *in, const struct model_seq *x)
{
    uint32_t about = take_byte(in), less = take_byte(in) % 64;
    struct model_move *v = &m->moves[about % MODEL_MOVES];
    if (!v->used && x->used)
        (about & 64 ? hold : import)(m, v, x, less);
    else if (v->used && v->imports && !v->whole && !(about & 128)) {
        model_moved(m, v, true);
        blocks_enter_parts(m->b, &v->prefix, v->parts, v->n);
        v->whole = true;
        model_look(m);
    } else if (v->used) {
        if (!v->imports) /* an import that failed has no content yet */
            model_moved(m, v, false);
        end_move(m, v);
    }
}

/* ---- worlds from begin to end ---- */

/* Starts a new epoch: the ranks have no state, and the requests are added again. */
static void reset(struct model *m)
{
    for (uint32_t i = 0; i < MODEL_SEQS; i++) {
        struct model_seq *x = &m->seqs[i];
        x->n_refs = x->n_pending = x->n_ahead = 0;
        if (x->used && x->ended)
            forget_request(x);
        if (!x->used)
            continue;
        x->running = x->tail_shared = false;
        x->n_scheduled = x->n_untold = x->enter_at = 0;
        x->n_total = x->r.n_ids;
        memset(x->told, 0, sizeof x->told);
        blocks_init_tables(m->b, x->tables, x->table_ids, x->r.ids_cap);
    }
    for (uint32_t i = 0; i < MODEL_MOVES; i++)
        if (m->moves[i].used)
            forget_move(&m->moves[i]);
    m->step_sent = m->step_done = 0;
    memset(m->blocks, 0, sizeof m->blocks);
    blocks_reset(m->b);
    model_look(m);
}

static void do_one(struct model *m, struct input *in)
{
    uint32_t op = take_byte(in);
    struct model_seq *x = &m->seqs[(op >> 4) % MODEL_SEQS];
    if ((op & 15) < 6)
        plan(m, in);
    else if ((op & 15) < 11)
        result(m, in);
    else if ((op & 15) < 13 || op == 0x0d)
        new_request(m, in);
    else if ((op & 15) == 13)
        move(m, in, x);
    else if (op == 0xff)
        reset(m);
    else if (x->used && !x->ended && (op & 15) == 14)
        end_request(m, x); /* the request is cancelled */
    else if (x->running)
        leave(m, x); /* the sequence is preempted for one of higher priority */
}

/* Checks that all blocks are free once all results have arrived and all sequences have left. */
static void close_world(struct model *m, struct input *in)
{
    while (m->step_done < m->step_sent && !m->failed)
        result(m, in);
    for (uint32_t i = 0; i < MODEL_SEQS && !m->failed; i++)
        if (m->seqs[i].used)
            end_request(m, &m->seqs[i]);
    for (uint32_t i = 0; i < MODEL_MOVES && !m->failed; i++)
        if (m->moves[i].used)
            end_move(m, &m->moves[i]);
    if (!m->failed)
        blocks_begin_step(m->b); /* this call frees the sources of copies */
    struct blocks_stats stats;
    blocks_get_stats(m->b, &stats);
    HOLD(m, stats.n_used == 0);
    m->stats.n_evictions += (uint32_t)stats.n_evictions;
    for (uint32_t i = 0; i < MODEL_SEQS; i++)
        if (m->seqs[i].used)
            forget_request(&m->seqs[i]);
    for (uint32_t i = 0; i < MODEL_MOVES; i++)
        if (m->moves[i].used)
            forget_move(&m->moves[i]);
    blocks_free(m->b);
}

bool blocks_play(const uint8_t *data, size_t size, struct model_stats *stats, struct error *err)
{
    static struct model m; /* static, because it is large; only one thread uses it */
    struct input in = {data, data + size};
    if (!open_world(&m, &in)) {
        *err = m.err;
        return false;
    }
    while (in.at < in.end && !m.failed)
        do_one(&m, &in);
    close_world(&m, &in);
    if (stats) {
        const uint32_t *from = (const uint32_t *)&m.stats;
        for (size_t i = 0; i < sizeof *stats / sizeof *from; i++)
            ((uint32_t *)stats)[i] += from[i];
    }
    *err = m.err;
    return !m.failed;
}
