/* Keeps the state of a rank's sequences (see sequences.h), on the compute thread. step.c and the
 * null device call sequences_apply with each plan. It checks the plan and updates slots, ids and
 * block tables. sequences_runs then returns the runs to execute. Invariants: no part of a plan
 * is trusted. Every slot, length, position and block number is checked before it is used as an
 * index. An error leaves the state `broken`, and every later plan is refused until a reset. All
 * ranks apply the same plans, so their states and digests are equal. */
#include "worker/sequences/sequences.h"

#include <string.h>

#include "common/base/mem.h"
#include "proto/plan_digest.h"

/* FREE_MAX is the most finished sequences that are kept with their buffers for later admissions,
 * so that a steady state allocates nothing. */
enum { FREE_MAX = 64, ADMIT_ARENA_LIMIT = 8 << 20 };

struct sequences {
    struct sequences_limits limits;
    struct sequence **slots; /* sequences by slot, [n_slots]; NULL = empty slot */
    uint32_t n_slots, n_live;
    uint64_t n_admitted;
    struct sequence *free_list;
    uint32_t n_free;
    struct sequence_run *runs; /* [n_runs]; runs of the last plan */
    uint32_t n_runs, runs_cap;
    bool broken;
};

struct sequences *sequences_new(const struct sequences_limits *limits)
{
    struct sequences *s = mem_zalloc(sizeof *s);
    s->limits = *limits;
    return s;
}

static void sequence_free(struct sequence *q)
{
    if (!q)
        return;
    for (uint32_t i = 0; i < SEQUENCES_MAX_KV_GROUPS; i++)
        mem_free(q->tables[i].ids);
    mem_free(q->ids);
    draft_ngram_fini(&q->draft);
    arena_fini(&q->arena);
    mem_free(q);
}

void sequences_free(struct sequences *s)
{
    if (!s)
        return;
    for (uint32_t i = 0; i < s->n_slots; i++)
        sequence_free(s->slots[i]);
    for (struct sequence *q = s->free_list, *next; q; q = next) {
        next = q->next_free;
        sequence_free(q);
    }
    mem_free(s->runs);
    mem_free(s->slots);
    mem_free(s);
}

static void release(struct sequences *s, uint32_t slot)
{
    struct sequence *q = s->slots[slot];
    s->slots[slot] = NULL;
    s->n_live--;
    if (s->n_free == FREE_MAX) {
        sequence_free(q);
        return;
    }
    q->next_free = s->free_list;
    s->free_list = q;
    s->n_free++;
}

static void release_all(struct sequences *s)
{
    for (uint32_t i = 0; i < s->n_slots && s->n_live > 0; i++)
        if (s->slots[i])
            release(s, i);
}

enum status sequences_reset(struct sequences *s, struct u32_span n_blocks, struct error *err)
{
    release_all(s);
    s->n_runs = 0;
    s->broken = false;
    if (n_blocks.n == 0)
        return STATUS_OK;
    if (n_blocks.n != s->limits.n_kv_groups)
        return error_set(
            err, STATUS_INVALID,
            "the message Form names %u KV groups, but this rank has %u. Report this bug",
            n_blocks.n, s->limits.n_kv_groups);
    for (uint32_t i = 0; i < n_blocks.n; i++)
        s->limits.kv_groups[i].n_blocks = n_blocks.ptr[i];
    return STATUS_OK;
}

struct sequence *sequences_find(const struct sequences *s, uint32_t slot)
{
    return slot < s->n_slots ? s->slots[slot] : NULL;
}

struct sequence_runs sequences_runs(const struct sequences *s)
{
    return (struct sequence_runs){s->runs, s->n_runs};
}

/* ---- growing arrays: sized by a peer, so an allocation may fail ---- */

static bool grow_u32(uint32_t **array, uint32_t *cap, uint32_t need)
{
    if (need <= *cap)
        return true;
    uint64_t want = *cap ? (uint64_t)*cap * 2 : 64;
    if (want < need)
        want = need;
    uint32_t *fresh = mem_try_array(want, sizeof *fresh);
    if (!fresh)
        return false;
    if (*array)
        memcpy(fresh, *array, *cap * sizeof *fresh);
    mem_free(*array);
    *array = fresh;
    *cap = (uint32_t)want;
    return true;
}

static bool grow_slots(struct sequences *s, uint32_t need)
{
    if (need <= s->n_slots)
        return true;
    uint32_t want = s->n_slots ? s->n_slots : 64;
    while (want < need)
        want *= 2;
    struct sequence **fresh = mem_try_array(want, sizeof(struct sequence *));
    if (!fresh)
        return false;
    if (s->slots)
        memcpy(fresh, s->slots, s->n_slots * sizeof(struct sequence *));
    mem_free(s->slots);
    s->slots = fresh;
    s->n_slots = want;
    return true;
}

static bool grow_runs(struct sequences *s, uint32_t need)
{
    if (need <= s->runs_cap)
        return true;
    uint64_t want = s->runs_cap ? (uint64_t)s->runs_cap * 2 : 64;
    if (want < need)
        want = need;
    struct sequence_run *fresh = mem_try_array(want, sizeof *fresh);
    if (!fresh)
        return false;
    /* there is nothing to copy, since the array only held the last plan's runs */
    mem_free(s->runs);
    s->runs = fresh;
    s->runs_cap = (uint32_t)want;
    return true;
}

uint32_t sequence_most_ids(const struct sequence *q, uint32_t max_model_len)
{
    return max_model_len + (q->sampling.pooling != POOLING_NONE);
}

bool sequence_push(struct sequence *q, uint32_t id, uint32_t max_model_len)
{
    if (q->n_ids >= sequence_most_ids(q, max_model_len) ||
        !grow_u32(&q->ids, &q->ids_cap, q->n_ids + 1))
        return false;
    q->n_computed = q->n_ids;
    q->ids[q->n_ids++] = id;
    return true;
}

/* ---- plan ---- */

static enum status check_copies(const struct sequences *s, const struct msg_plan *p,
                                struct error *err)
{
    for (uint32_t i = 0; i < p->n_copies; i++) {
        const struct plan_copy *c = &p->copies[i];
        if (c->i_group >= s->limits.n_kv_groups)
            return error_set(err, STATUS_PROTOCOL,
                             "the plan copies a block in KV group %u, but this rank has %u groups. "
                             "Report this bug",
                             c->i_group, s->limits.n_kv_groups);
        uint32_t n = s->limits.kv_groups[c->i_group].n_blocks;
        if (c->from >= n || c->to >= n || c->from == c->to)
            return error_set(err, STATUS_PROTOCOL,
                             "the plan copies block %u to block %u, but there are only %u blocks. "
                             "Report this bug",
                             c->from, c->to, n);
    }
    return STATUS_OK;
}

static struct sequence *take_free(struct sequences *s)
{
    struct sequence *q = s->free_list;
    if (!q) {
        q = mem_try_array(1, sizeof *q);
        if (q)
            arena_init(&q->arena, ADMIT_ARENA_LIMIT);
        return q;
    }
    s->free_list = q->next_free;
    s->n_free--;
    arena_reset(&q->arena);
    draft_ngram_reset(&q->draft);
    for (uint32_t i = 0; i < SEQUENCES_MAX_KV_GROUPS; i++) {
        q->tables[i].n = q->tables[i].n_dropped = 0;
        q->tables[i].digest = 0;
    }
    q->n_ids = 0;
    q->ran_in_step = 0;
    q->draft_lacks = q->adapter = 0;
    q->is_pending = false;
    return q;
}

/* Copies n * size bytes to the arena. Sets *ok to false when there is not enough memory. */
static const void *keep(struct arena *a, const void *from, size_t n, size_t size, bool *ok)
{
    void *copy = n > 0 ? arena_try_array(a, n, size) : NULL;
    if (copy)
        memcpy(copy, from, n * size);
    *ok = *ok && (n == 0 || copy);
    return copy;
}

static struct u32_span keep_ids(struct arena *a, struct u32_span s, bool *ok)
{
    return (struct u32_span){keep(a, s.ptr, s.n, sizeof *s.ptr, ok), s.n};
}

static struct str keep_str(struct arena *a, struct str s, bool *ok)
{
    return (struct str){keep(a, s.ptr, s.len, 1, ok), s.len};
}

/* Copies the sampling parameters, which outlive the plan. */
static bool keep_sampling(struct sequence *q, const struct sampling_params *from)
{
    struct sampling_params *p = &q->sampling;
    struct arena *a = &q->arena;
    bool ok = true;
    *p = *from;
    p->eos_ids = keep_ids(a, from->eos_ids, &ok);
    p->stop_ids = keep_ids(a, from->stop_ids, &ok);
    p->allowed_ids = keep_ids(a, from->allowed_ids, &ok);
    p->bad_words = keep_ids(a, from->bad_words, &ok);
    p->logit_bias = keep(a, from->logit_bias, from->n_logit_bias, sizeof *p->logit_bias, &ok);
    p->grammar = keep_str(a, from->grammar, &ok);
    p->lora = keep_str(a, from->lora, &ok);
    return ok;
}

static enum status check_admit(const struct sequences *s, const struct plan_admit *a,
                               struct error *err)
{
    if (a->slot >= SEQUENCES_MAX_SLOTS || sequences_find(s, a->slot))
        return error_set(err, STATUS_PROTOCOL,
                         "the plan admits a sequence to slot %u, which is %s. Report this bug",
                         a->slot, a->slot >= SEQUENCES_MAX_SLOTS ? "out of range" : "in use");
    if (a->ids.n == 0 || a->ids.n > s->limits.max_model_len)
        return error_set(
            err, STATUS_PROTOCOL,
            "slot %u is admitted with %u ids, but the model accepts 1 to %u. Report this bug",
            a->slot, a->ids.n, s->limits.max_model_len);
    if (a->n_prompt == 0 || a->n_prompt > a->ids.n || a->n_computed >= a->ids.n)
        return error_set(err, STATUS_PROTOCOL,
                         "slot %u is admitted with inconsistent counts: %u ids, %u of them prompt "
                         "and %u computed. Report this bug",
                         a->slot, a->ids.n, a->n_prompt, a->n_computed);
    if (a->sampling.n_prompt_logprobs >= 0 && a->n_computed > 0)
        return error_set(err, STATUS_PROTOCOL,
                         "slot %u is admitted with prompt_logprobs for all positions, but %u "
                         "positions are already computed. Report this bug",
                         a->slot, a->n_computed);
    if (a->sampling.pooling == POOLING_MEAN && a->n_computed > 0)
        return error_set(err, STATUS_PROTOCOL,
                         "slot %u is admitted for a mean over all positions, but %u positions are "
                         "already computed. Report this bug",
                         a->slot, a->n_computed);
    for (uint32_t i = 0; i < a->ids.n; i++)
        if (a->ids.ptr[i] >= s->limits.vocab_size)
            return error_set(err, STATUS_PROTOCOL,
                             "slot %u is admitted with id %u at position %u, but the vocabulary "
                             "has only %u ids. Report this bug",
                             a->slot, a->ids.ptr[i], i, s->limits.vocab_size);
    return STATUS_OK;
}

static enum status admit(struct sequences *s, const struct plan_admit *a, struct error *err)
{
    TRY(check_admit(s, a, err));
    struct sequence *q = grow_slots(s, a->slot + 1) ? take_free(s) : NULL;
    if (!q)
        return error_set(err, STATUS_NO_MEMORY,
                         "not enough memory for a sequence. Free memory on this machine");
    s->slots[a->slot] = q;
    s->n_live++;
    q->slot = a->slot;
    q->serial = ++s->n_admitted;
    q->n_prompt = a->n_prompt;
    q->n_computed = a->n_computed;
    q->pooled = NULL;
    q->n_pooled = 0;
    q->vector = (struct f32_span){0};
    if (!grow_u32(&q->ids, &q->ids_cap, a->ids.n) || !keep_sampling(q, &a->sampling))
        return error_set(err, STATUS_NO_MEMORY,
                         "not enough memory for the %u ids of slot %u. Free memory on this machine",
                         a->ids.n, a->slot);
    memcpy(q->ids, a->ids.ptr, a->ids.n * sizeof *q->ids);
    q->n_ids = a->ids.n;
    return STATUS_OK;
}

/* Checks the number of blocks that a table drops. It may drop blocks that it holds. When a run
 * begins beyond them (a prefix hit), it may also drop earlier blocks that it never held. */
static enum status check_drop(const struct sequence *q, const struct plan_run *r,
                              const struct plan_blocks *b, const struct kv_group *g,
                              struct error *err)
{
    const struct rank_block_table *t = &q->tables[b->i_group];
    uint64_t passed = r->start / g->block_tokens;
    uint64_t n = passed > t->n_dropped ? passed - t->n_dropped : 0;
    n = n > t->n ? n : t->n;
    if (b->drop_leading <= n)
        return STATUS_OK;
    return error_set(
        err, STATUS_PROTOCOL,
        "slot %u: the plan drops %u blocks, but the block table has %u. Report this bug", q->slot,
        b->drop_leading, t->n);
}

static void drop_leading(struct sequence *q, uint32_t i_group, uint32_t n)
{
    struct rank_block_table *t = &q->tables[i_group];
    uint32_t n_held = n < t->n ? n : t->n;
    for (uint32_t i = 0; i < n_held; i++)
        t->digest -= plan_digest_block(q->slot, i_group, t->n_dropped + i, t->ids[i]);
    if (n_held > 0)
        memmove(t->ids, t->ids + n_held, (t->n - n_held) * sizeof *t->ids);
    t->n -= n_held;
    t->n_dropped += n;
}

static enum status extend_table(const struct sequences *s, struct sequence *q,
                                const struct plan_run *r, const struct plan_blocks *b,
                                struct error *err)
{
    if (b->i_group >= s->limits.n_kv_groups)
        return error_set(err, STATUS_PROTOCOL,
                         "slot %u: the plan gives blocks of KV group %u, but this rank has %u "
                         "groups. Report this bug",
                         q->slot, b->i_group, s->limits.n_kv_groups);
    const struct kv_group *g = &s->limits.kv_groups[b->i_group];
    struct rank_block_table *t = &q->tables[b->i_group];
    TRY(check_drop(q, r, b, g, err));
    drop_leading(q, b->i_group, b->drop_leading); /* drops come before appends */
    if (b->ids.n > g->n_blocks || t->n + b->ids.n > g->n_blocks)
        return error_set(err, STATUS_PROTOCOL,
                         "slot %u: a block table of %u + %u blocks is impossible: only %u blocks "
                         "exist. Report this bug",
                         q->slot, t->n, b->ids.n, g->n_blocks);
    if (!grow_u32(&t->ids, &t->cap, t->n + b->ids.n))
        return error_set(err, STATUS_NO_MEMORY,
                         "not enough memory for a block table. Free memory on this machine");
    for (uint32_t i = 0; i < b->ids.n; i++) {
        uint32_t id = b->ids.ptr[i];
        if (id >= g->n_blocks)
            return error_set(
                err, STATUS_PROTOCOL,
                "slot %u: the plan names block %u, but only %u blocks exist. Report this bug",
                q->slot, id, g->n_blocks);
        t->digest += plan_digest_block(q->slot, b->i_group, t->n_dropped + t->n, id);
        t->ids[t->n++] = id;
    }
    return STATUS_OK;
}

/* Returns the most ids that the sequence can have: by max_tokens or by the model. */
static uint64_t last_length(const struct sequences *s, const struct sequence *q)
{
    uint64_t asked = (uint64_t)q->n_prompt + q->sampling.max_tokens;
    return asked < s->limits.max_model_len ? asked : s->limits.max_model_len;
}

/* Returns the first position after a group's table. */
static uint64_t table_end(const struct sequences *s, const struct sequence *q, uint32_t i_group)
{
    const struct rank_block_table *t = &q->tables[i_group];
    return ((uint64_t)t->n_dropped + t->n) * s->limits.kv_groups[i_group].block_tokens;
}

/* Returns the number of draft tokens that a run may make. They count towards the length, and
 * their keys and values need blocks in the tables. */
static uint32_t draft_room(const struct sequences *s, const struct sequence *q,
                           const struct plan_run *r)
{
    uint64_t n = r->n_draft < SEQUENCES_MAX_DRAFT ? r->n_draft : SEQUENCES_MAX_DRAFT;
    uint64_t length = last_length(s, q), sampled = (uint64_t)q->n_ids + 1;
    uint64_t left = length > sampled ? length - sampled : 0;
    n = n < left ? n : left;
    for (uint32_t g = 0; g < s->limits.n_kv_groups && n > 0; g++) {
        /* `left` is not negative, since the tables cover the ids themselves */
        left = table_end(s, q, g) - q->n_ids;
        n = n < left ? n : left;
    }
    return (uint32_t)n;
}

/* Checks that the tables cover the run and all positions that it attends to. */
static enum status check_tables(const struct sequences *s, const struct sequence_run *r,
                                struct error *err)
{
    const struct sequence *q = r->q;
    uint64_t end = (uint64_t)r->start + r->n_tokens;
    for (uint32_t g = 0; g < s->limits.n_kv_groups; g++) {
        const struct kv_group *k = &s->limits.kv_groups[g];
        uint64_t dropped = (uint64_t)q->tables[g].n_dropped * k->block_tokens;
        uint64_t first = k->kind == KV_WINDOW && r->start >= k->window_tokens
                             ? r->start - k->window_tokens + 1
                             : 0;
        if (dropped > first)
            return error_set(err, STATUS_PROTOCOL,
                             "slot %u: the blocks of KV group %u begin at position %llu, but "
                             "position %u still needs position %llu. Report this bug",
                             q->slot, g, (unsigned long long)dropped, r->start,
                             (unsigned long long)first);
        if (end > table_end(s, q, g))
            return error_set(err, STATUS_PROTOCOL,
                             "slot %u: a run ends at position %llu, but the blocks of KV group %u "
                             "end at %llu. Report this bug",
                             q->slot, (unsigned long long)end, g,
                             (unsigned long long)table_end(s, q, g));
    }
    return STATUS_OK;
}

/* Checks the positions of a run. `start` may be beyond the positions that this sequence has
 * computed: other sequences have computed them, or do so earlier in this plan. */
static enum status check_positions(const struct sequences *s, const struct sequence *q,
                                   const struct plan_run *r, struct error *err)
{
    if (r->start < q->n_computed || r->n_tokens == 0)
        return error_set(err, STATUS_PROTOCOL,
                         "slot %u: a run of %u tokens starts at position %u, but %u positions are "
                         "computed. Report this bug",
                         q->slot, r->n_tokens, r->start, q->n_computed);
    if (q->sampling.n_prompt_logprobs >= 0 && r->start > q->n_computed &&
        q->n_computed + 1 < q->n_prompt)
        return error_set(err, STATUS_PROTOCOL,
                         "slot %u: a run of a prompt with prompt_logprobs starts at position %u, "
                         "but %u positions are computed. Report this bug",
                         q->slot, r->start, q->n_computed);
    if (q->sampling.pooling == POOLING_MEAN && r->start > q->n_computed)
        return error_set(err, STATUS_PROTOCOL,
                         "slot %u: a run for a mean over all positions starts at position %u, but "
                         "%u positions are computed. Report this bug",
                         q->slot, r->start, q->n_computed);
    uint64_t end = (uint64_t)r->start + r->n_tokens;
    if (end > q->n_ids)
        return error_set(
            err, STATUS_PROTOCOL,
            "slot %u: a run ends at position %llu, but only %u ids are known. Report this bug",
            q->slot, (unsigned long long)end, q->n_ids);
    if (r->sample && (end != q->n_ids || end >= sequence_most_ids(q, s->limits.max_model_len)))
        return error_set(err, STATUS_PROTOCOL,
                         "slot %u: the plan samples at position %llu, but %u ids are known and the "
                         "maximum length is %u. Report this bug",
                         q->slot, (unsigned long long)end, q->n_ids, s->limits.max_model_len);
    return STATUS_OK;
}

/* Checks a run that follows draft tokens. The head does not know how many of them were accepted,
 * so the rank finds the start. */
static enum status check_follows(const struct sequence *q, const struct plan_run *r,
                                 struct error *err)
{
    if (r->n_tokens != 1 || !r->sample)
        return error_set(err, STATUS_PROTOCOL,
                         "slot %u: a run that follows draft tokens must have one token and sample, "
                         "but this one has %u and %s. Report this bug",
                         q->slot, r->n_tokens, r->sample ? "samples" : "does not sample");
    if (r->start >= q->n_ids || q->n_computed + 1 != q->n_ids)
        return error_set(err, STATUS_PROTOCOL,
                         "slot %u: a run follows draft tokens at position %u, but %u ids are "
                         "known and %u computed. Report this bug",
                         q->slot, r->start, q->n_ids, q->n_computed);
    return STATUS_OK;
}

static enum status resolve_run(struct sequences *s, struct sequence *q, const struct plan_run *r,
                               struct sequence_run *out, struct error *err)
{
    *out = (struct sequence_run){
        .q = q, .start = r->start, .n_tokens = r->n_tokens, .sample = r->sample};
    if (r->n_draft > 0 && (r->n_tokens != 1 || !r->sample))
        return error_set(err, STATUS_PROTOCOL,
                         "slot %u: a run with %u draft tokens must have one token and sample, but "
                         "this one has %u and %s. Report this bug",
                         q->slot, r->n_draft, r->n_tokens,
                         r->sample ? "samples" : "does not sample");
    if (r->follows) {
        TRY(check_follows(q, r, err));
        out->start = q->n_ids - 1;
        if (q->n_ids >= last_length(s, q)) {
            out->n_tokens = 0;
            return STATUS_OK;
        }
    } else {
        TRY(check_positions(s, q, r, err));
    }
    TRY(check_tables(s, out, err));
    q->n_computed = out->start + out->n_tokens;
    out->n_draft = r->n_draft > 0 ? draft_room(s, q, r) : 0;
    if (!grow_u32(&q->ids, &q->ids_cap, q->n_ids + out->n_draft))
        return error_set(err, STATUS_NO_MEMORY,
                         "not enough memory for %u draft tokens. Free memory on this machine",
                         out->n_draft);
    return STATUS_OK;
}

static enum status apply_run(struct sequences *s, const struct msg_plan *p,
                             const struct plan_run *r, struct error *err)
{
    struct sequence *q = sequences_find(s, r->slot);
    if (!q)
        return error_set(err, STATUS_PROTOCOL,
                         "the plan runs slot %u, which is empty. Report this bug", r->slot);
    if (q->ran_in_step == p->step)
        return error_set(err, STATUS_PROTOCOL, "the plan runs slot %u twice. Report this bug",
                         r->slot);
    q->ran_in_step = p->step;
    for (uint32_t i = 0; i < r->n_blocks; i++)
        TRY(extend_table(s, q, r, &r->blocks[i], err));
    return resolve_run(s, q, r, &s->runs[s->n_runs++], err);
}

static enum status apply(struct sequences *s, const struct msg_plan *p, struct error *err)
{
    s->n_runs = 0;
    if (p->full)
        release_all(s);
    for (uint32_t i = 0; i < p->finished.n; i++) {
        if (!sequences_find(s, p->finished.ptr[i]))
            return error_set(err, STATUS_PROTOCOL,
                             "the plan finishes slot %u, which is empty. Report this bug",
                             p->finished.ptr[i]);
        release(s, p->finished.ptr[i]);
    }
    TRY(check_copies(s, p, err));
    for (uint32_t i = 0; i < p->n_admits; i++)
        TRY(admit(s, &p->admits[i], err));
    if (!grow_runs(s, p->n_runs))
        return error_set(err, STATUS_NO_MEMORY,
                         "not enough memory for %u runs. Free memory on this machine", p->n_runs);
    for (uint32_t i = 0; i < p->n_runs; i++)
        TRY(apply_run(s, p, &p->runs[i], err));
    if (p->digest == 0)
        return STATUS_OK;
    uint64_t ours = sequences_digest(s);
    if (ours != p->digest)
        return error_set(err, STATUS_PROTOCOL,
                         "the plan's digest is %016llx, but this rank's state gives %016llx (%u "
                         "sequences). Report this bug",
                         (unsigned long long)p->digest, (unsigned long long)ours, s->n_live);
    return STATUS_OK;
}

enum status sequences_apply(struct sequences *s, const struct msg_plan *p, struct error *err)
{
    if (s->broken)
        return error_set(
            err, STATUS_PROTOCOL,
            "the plan is refused, because an earlier plan of this replica was refused");
    enum status st = apply(s, p, err);
    if (st == STATUS_OK)
        return STATUS_OK;
    s->broken = true;
    return error_prefix(err, st, "step %llu", (unsigned long long)p->step);
}

uint64_t sequences_digest(const struct sequences *s)
{
    uint64_t sum = 0;
    for (uint32_t i = 0, n = 0; i < s->n_slots && n < s->n_live; i++) {
        const struct sequence *q = s->slots[i];
        if (!q)
            continue;
        n++;
        sum += plan_digest_sequence(q->slot, q->n_computed);
        for (uint32_t g = 0; g < s->limits.n_kv_groups; g++)
            sum += q->tables[g].digest;
    }
    return plan_digest_end(sum);
}
