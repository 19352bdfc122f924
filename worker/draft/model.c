/* Makes draft tokens with a second model (see model.h), on the compute thread of the sampling
 * rank. step/draft.c calls draft_model_plan, draft_model_copy and draft_model_run with the runs
 * of a step. Rows are collected into passes of the draft model's engine. The best token of each
 * picked row is written after the sequence's ids.
 * Invariants: the engine is owned, the device is the target's. The draft model uses the target's
 * block tables (group `i_group`), so block b of the draft model is the twin of block b of the
 * target. A pass has at most pass_rows rows and PASS_TABLE_ENTRIES table entries. */
#include "worker/draft/model.h"

#include "common/base/log.h"
#include "common/base/mem.h"
#include "worker/runner/logits.h"
#include "worker/sequences/batch.h"

/* `pick` is a row whose best token becomes a draft token. */
struct pick {
    uint32_t row;
    uint32_t *out;
};

struct draft_model {
    struct engine *engine;
    /* the target's KV group with full attention; the draft model uses its block tables */
    uint32_t i_group;
    /* The next fields describe the pass that is being built; arrays have [pass_rows]. */
    uint32_t n_rows, n_picks;
    uint64_t n_entries; /* entries of block tables in the pass, at most PASS_TABLE_ENTRIES */
    uint32_t *ids, *positions,
        *pending; /* pending: as in row_batch, with `last`; used when has_pending */
    const uint32_t *last;
    bool has_pending;
    struct kv_row *kv_rows;
    struct pick *picks;
    uint32_t *kept; /* rows of `picks`, [n_picks] */
};

/* ---- life ---- */

static enum status find_tables(const struct engine *target, uint32_t *i_group, struct error *err)
{
    const struct program *p = target->program;
    for (*i_group = 0; *i_group < p->n_kv_groups; ++*i_group)
        if (p->kv_groups[*i_group].window == 0)
            return STATUS_OK;
    return error_set(err, STATUS_UNSUPPORTED,
                     "a draft model cannot be used with %s, because each layer of this model has a "
                     "sliding window. Use --spec-method ngram instead",
                     target->info.name);
}

static enum status check_pair(const struct engine *draft, const struct engine *target,
                              struct error *err)
{
    uint32_t own = draft->config.vocab_size, want = target->config.vocab_size;
    if (own == want)
        return STATUS_OK;
    return error_set(err, STATUS_UNSUPPORTED,
                     "the draft model has a vocabulary of %u tokens, but %s has %u: choose a draft "
                     "model with the same vocabulary",
                     own, target->info.name, want);
}

static enum status open_engine(struct draft_model *m, const char *model,
                               const struct engine_setup *s, const struct engine *target,
                               struct error *err)
{
    struct engine_setup own = *s;
    own.model = model;
    own.device = target->device;
    own.n_threads = target->n_threads;
    own.tp = 1;
    own.rank = 0;
    own.kv_transfer_bytes = 0;
    own.pp = 1;
    own.stage = 0;
    own.is_elastic = false; /* the draft model never takes another rank slot */
    own.collectives = NULL;
    own.told_bytes = NULL;
    own.told_held_bytes = 0;
    /* 0 selects the draft model's own maximum length; later positions get no draft tokens */
    own.max_model_len = 0;
    own.n_kv_blocks = 0;
    own.kv_memory_bytes = 0;
    own.max_loras = 0;                     /* adapters do not change the draft model */
    own.quantization = QUANT_AT_LOAD_NONE; /* the draft model's files decide */
    TRY(engine_measure(&own, &m->engine, err));
    return check_pair(m->engine, target, err);
}

enum status draft_model_open(const char *model, const struct engine_setup *s,
                             const struct engine *target, struct draft_model **out,
                             struct error *err)
{
    uint32_t i_group;
    TRY(find_tables(target, &i_group, err));
    struct draft_model *m = mem_zalloc(sizeof *m);
    m->i_group = i_group;
    enum status st = open_engine(m, model, s, target, err);
    if (st != STATUS_OK) {
        draft_model_close(m);
        return error_prefix(err, st, "draft model %s", model);
    }
    *out = m;
    return STATUS_OK;
}

void draft_model_close(struct draft_model *m)
{
    if (!m)
        return;
    engine_close(m->engine);
    mem_free(m->ids);
    mem_free(m->positions);
    mem_free(m->pending);
    mem_free(m->kv_rows);
    mem_free(m->picks);
    mem_free(m->kept);
    mem_free(m);
}

struct engine_beside draft_model_needs(const struct draft_model *m)
{
    const struct engine *e = m->engine;
    struct engine_beside b = {.fixed_bytes = e->weights_bytes + e->activation_bytes};
    for (uint32_t g = 0; g < e->program->n_kv_groups; g++)
        b.block_bytes += kv_store_block_bytes(e->program, &e->kv_shape, g);
    return b;
}

enum status draft_model_load(struct draft_model *m, const struct engine *target, struct error *err)
{
    struct engine *e = m->engine;
    /* every KV group of the draft model has this number of blocks */
    e->kv_shape.n_blocks = target->kv_groups[m->i_group].n_blocks;
    enum status s = engine_load(e, &(struct engine_beside){0}, err);
    if (s != STATUS_OK)
        return error_prefix(err, s, "draft model %s", e->info.name);
    m->ids = mem_array(e->pass_rows, sizeof *m->ids);
    m->positions = mem_array(e->pass_rows, sizeof *m->positions);
    m->pending = mem_array(e->pass_rows, sizeof *m->pending);
    m->kv_rows = mem_array(e->pass_rows, sizeof *m->kv_rows);
    m->picks = mem_array(e->pass_rows, sizeof *m->picks);
    m->kept = mem_array(e->pass_rows, sizeof *m->kept);
    return STATUS_OK;
}

void draft_model_view(const struct draft_model *m, struct kv_view *out)
{
    struct kv_view own = {0};
    struct kv_view_group *g = &out->groups[m->i_group];
    if (!kv_store_view(m->engine->kv, &own))
        return; /* the target's store has no view either, since both stores have the same layout */
    for (uint32_t i = 0; i < own.n_groups; i++)
        g->pieces[g->n_pieces++] = own.groups[i].pieces[0];
}

const struct engine *draft_model_engine(const struct draft_model *m)
{
    return m->engine;
}

enum status draft_model_sleep(struct draft_model *m, enum sleep_level level, struct error *err)
{
    return engine_sleep(m->engine, level, err);
}

enum status draft_model_wake(struct draft_model *m, struct error *err)
{
    enum status s = m->engine->sleep_level == SLEEP_LEVEL_WEIGHTS
                        ? engine_take_rank(m->engine, 1, 0, 0, err)
                        : engine_wake(m->engine, err);
    return s == STATUS_OK ? s : error_prefix(err, s, "draft model %s", m->engine->info.name);
}

/* ---- passes ---- */

static enum status pick_tokens(struct draft_model *m, struct error *err)
{
    const struct engine *e = m->engine;
    uint32_t vocab_size = e->config.vocab_size;
    for (uint32_t done = 0; done < m->n_picks;) {
        uint32_t rows[RUNNER_LOGITS_ROWS], n = m->n_picks - done;
        struct logits_top top[RUNNER_LOGITS_ROWS];
        float *logits; /* logits of the draft model, in device memory */
        n = n < RUNNER_LOGITS_ROWS ? n : RUNNER_LOGITS_ROWS;
        for (uint32_t i = 0; i < n; i++)
            rows[i] = m->picks[done + i].row;
        if (runner_finds_best(e->runner)) {
            TRY(runner_best(e->runner, rows, n, top, err));
        } else {
            TRY(runner_logits(e->runner, rows, n, &logits, err));
            TRY(runner_look(e->runner, n, top, NULL, err));
        }
        for (uint32_t i = 0; i < n; i++) /* id >= vocab_size: all logits are NaN */
            *m->picks[done + i].out = top[i].id < vocab_size ? top[i].id : 0;
        done += n;
    }
    return STATUS_OK;
}

static enum status run_pass(struct draft_model *m, struct error *err)
{
    struct row_batch b = {.n_rows = m->n_rows, .ids = m->ids, .positions = m->positions};
    if (m->n_rows == 0)
        return STATUS_OK;
    if (m->has_pending) {
        b.pending = m->pending;
        b.last = m->last;
    }
    for (uint32_t i = 0; i < m->n_picks; i++)
        m->kept[i] = m->picks[i].row;
    b.kept = m->kept;
    b.n_kept = m->n_picks;
    for (uint32_t g = 0; g < m->engine->program->n_kv_groups; g++)
        /* all groups of the draft model, windows too, use the same blocks */
        b.kv_rows[g] = m->kv_rows;
    TRY(runner_forward(m->engine->runner, &b, err));
    TRY(pick_tokens(m, err));
    m->n_rows = m->n_picks = 0;
    m->n_entries = 0;
    m->has_pending = false;
    return STATUS_OK;
}

/* Adds a row to the pass. A full pass runs first. The token after the row is written to
 * *draft_token; NULL = not needed. */
static enum status add_row(struct draft_model *m, const struct sequence *q, uint32_t position,
                           uint32_t *draft_token, struct error *err)
{
    const struct rank_block_table *t = &q->tables[m->i_group];
    bool is_new = m->n_rows == 0 || m->kv_rows[m->n_rows - 1].blocks != t->ids;
    uint64_t n_entries = is_new ? (uint64_t)t->n * m->engine->program->n_kv_groups : 0;
    if (m->n_rows == m->engine->pass_rows || m->n_entries + n_entries > PASS_TABLE_ENTRIES) {
        TRY(run_pass(m, err));
        n_entries = (uint64_t)t->n * m->engine->program->n_kv_groups;
    }
    uint32_t i = m->n_rows++;
    m->n_entries += n_entries;
    bool is_pending = m->last && q->is_pending && position + 1 == q->n_ids;
    m->ids[i] = q->ids[position];
    m->pending[i] = is_pending ? q->slot : UINT32_MAX;
    m->has_pending = m->has_pending || is_pending;
    m->positions[i] = position;
    m->kv_rows[i] =
        (struct kv_row){.blocks = t->ids, .n_dropped = t->n_dropped, .position = position};
    if (draft_token)
        m->picks[m->n_picks++] = (struct pick){i, draft_token};
    return STATUS_OK;
}

/* ---- a plan ---- */

/* Limits the draft tokens of a run by the plan, by n_tokens, and by the draft model's maximum
 * length. */
void draft_model_plan(const struct draft_model *m, struct sequence_runs runs, uint32_t n_tokens)
{
    uint32_t length = m->engine->max_model_len;
    for (uint32_t i = 0; i < runs.n; i++) {
        struct sequence_run *r = &runs.ptr[i];
        uint32_t room = r->q->n_ids <= length ? length - r->q->n_ids + 1 : 0;
        uint32_t n = r->n_draft < n_tokens ? r->n_draft : n_tokens;
        r->n_drafted = n < room ? n : room;
    }
}

void draft_model_copy(struct draft_model *m, const struct plan_copy *copies, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        struct plan_copy own = copies[i];
        if (own.i_group != m->i_group)
            continue;
        for (own.i_group = 0; own.i_group < m->engine->program->n_kv_groups; own.i_group++)
            kv_store_copy(m->engine->kv, &own);
    }
}

/* Adds the rows of the run. When all draft tokens of the previous step were accepted, the first
 * row is the last of these tokens. It has not been a row yet, since no token after it was needed
 * (`draft_lacks`). */
static enum status add_run(struct draft_model *m, const struct sequence_run *r, struct error *err)
{
    struct sequence *q = r->q;
    uint32_t length = m->engine->max_model_len, end = r->start + r->n_tokens;
    if (r->n_tokens == 0)
        return STATUS_OK;
    for (uint32_t p = r->start - q->draft_lacks; p < end && p < length; p++)
        TRY(add_row(m, q, p, r->n_drafted > 0 && p + 1 == end ? q->ids + q->n_ids : NULL, err));
    q->draft_lacks = 0;
    return STATUS_OK;
}

/* Makes the first draft token of every run, then the second of every run, and so on. */
enum status draft_model_run(struct draft_model *m, struct sequence_runs runs, const uint32_t *last,
                            struct error *err)
{
    uint32_t n_most = 0;
    m->n_entries = 0;
    m->n_rows = m->n_picks = 0; /* a failed plan may have left rows and picks */
    m->has_pending = false;
    m->last = last;
    for (uint32_t i = 0; i < runs.n; i++) {
        TRY(add_run(m, &runs.ptr[i], err));
        n_most = runs.ptr[i].n_drafted > n_most ? runs.ptr[i].n_drafted : n_most;
    }
    TRY(run_pass(m, err));
    for (uint32_t k = 1; k < n_most; k++) {
        for (uint32_t i = 0; i < runs.n; i++) {
            const struct sequence *q = runs.ptr[i].q;
            uint32_t at = q->n_ids + k - 1; /* position of the previous draft token */
            if (runs.ptr[i].n_drafted > k)
                TRY(add_row(m, q, at, q->ids + at + 1, err));
        }
        TRY(run_pass(m, err));
    }
    return STATUS_OK;
}
