/* Implements the model that `blocks` is compared with. blocks_play.c calls `model_look` after
 * each call of `blocks`, and `model_told`, `model_run` and `model_copy` for each plan and
 * result. The model keeps plain arrays of owners and of digests, one digest for each place of a
 * block. `HOLD` records the first invariant that fails and stops the rest. Invariants: a block
 * had no user before it is allocated, and each run finds exactly the ids before it. One thread
 * runs the model, and `struct model` owns all state. */
#include "tests/unit/head/kv/blocks_model.h"

#include <string.h>

#include "proto/plan_digest.h"

void model_hold(struct model *m, bool ok, const char *text, const char *file, int line)
{
    if (ok || m->failed)
        return;
    m->failed = true;
    error_set(&m->err, STATUS_INTERNAL, "%s:%d: %s is false", file, line, text);
}

static uint32_t tokens_of(const struct model *m, uint32_t i_group)
{
    return m->groups[i_group].block_tokens;
}

static uint32_t window_of(const struct model *m, uint32_t i_group)
{
    return m->groups[i_group].kind == KV_WINDOW ? m->groups[i_group].window_tokens : 0;
}

/* ---- owners ---- */

static void count_owners(const struct model *m, uint32_t i_group, uint32_t *owners)
{
    uint32_t n_copies;
    const struct plan_copy *copies = blocks_copies(m->b, &n_copies);
    for (uint32_t i = 0; i < MODEL_SEQS; i++) {
        const struct block_table *t = &m->seqs[i].tables[i_group];
        for (uint32_t k = t->first; m->seqs[i].used && k < t->n; k++)
            owners[t->ids[k] % MODEL_BLOCKS]++;
    }
    for (uint32_t i = 0; i < n_copies; i++)
        if (copies[i].i_group == i_group)
            owners[copies[i].from % MODEL_BLOCKS]++;
    for (uint32_t i = 0; i < MODEL_MOVES; i++)
        for (uint32_t k = 0; m->moves[i].used && k < m->moves[i].n; k++)
            if (m->moves[i].parts[k].i_group == i_group)
                owners[m->moves[i].parts[k].id % MODEL_BLOCKS]++;
}

static void look_at_group(struct model *m, uint32_t i_group)
{
    const struct block_pool *pool = blocks_pool(m->b, i_group);
    uint32_t owners[MODEL_BLOCKS] = {0}, n_free = 0, n_quarantined = 0;
    uint64_t promised = 0;
    count_owners(m, i_group, owners);
    for (uint32_t i = 0; i < m->groups[i_group].n_blocks; i++) {
        struct model_block *b = &m->blocks[i_group][i];
        if (b->owners && !owners[i])
            b->let_go = m->step_sent;
        b->owners = owners[i];
        HOLD(m, b->owners == block_pool_owners(pool, i));
        n_free += !b->owners && b->let_go <= m->step_done;
        n_quarantined += !b->owners && b->let_go > m->step_done;
    }
    for (uint32_t i = 0; i < MODEL_SEQS; i++)
        promised += m->seqs[i].used ? m->seqs[i].tables[i_group].n_promised : 0;
    HOLD(m, n_free == block_pool_n_free(pool));
    HOLD(m, n_quarantined == block_pool_n_quarantined(pool));
    HOLD(m, promised == blocks_promised(m->b, i_group));
}

static void look_at_seq(struct model *m, const struct model_seq *x)
{
    uint64_t digest = 0;
    for (uint32_t g = 0; g < m->c.n_groups; g++) {
        const struct model_table *told = &x->told[g];
        HOLD(m, x->running || x->tables[g].n == 0);
        for (uint32_t k = told->first; k < told->n; k++) {
            HOLD(m, x->tables[g].first <= k && x->tables[g].ids[k] == told->ids[k]);
            digest += plan_digest_block(x->slot, g, k, told->ids[k]);
        }
    }
    HOLD(m, digest == blocks_digest(m->b, x->tables));
}

void model_look(struct model *m)
{
    struct blocks_stats stats;
    uint32_t n_used = 0;
    for (uint32_t g = 0; g < m->c.n_groups; g++) {
        look_at_group(m, g);
        n_used += m->groups[g].n_blocks - block_pool_n_free(blocks_pool(m->b, g));
    }
    for (uint32_t i = 0; i < MODEL_SEQS; i++)
        if (m->seqs[i].used)
            look_at_seq(m, &m->seqs[i]);
    blocks_get_stats(m->b, &stats);
    HOLD(m, stats.n_used == n_used);
    if (!m->failed)
        m->failed = !blocks_check(m->b, &m->err);
}

void model_handed_out(struct model *m, uint32_t i_group, const uint32_t *ids, uint32_t n)
{
    uint32_t owners[MODEL_BLOCKS] = {0};
    count_owners(m, i_group, owners);
    for (uint32_t k = 0; k < n && !m->failed; k++) {
        HOLD(m, ids[k] < m->groups[i_group].n_blocks);
        if (m->failed)
            return;
        const struct model_block *b = &m->blocks[i_group][ids[k]];
        /* The block lost its last owner in this very call. */
        uint64_t let_go = b->owners ? m->step_sent : b->let_go;
        HOLD(m, owners[ids[k]] == 1);
        HOLD(m, let_go <= m->step_done && b->sent <= m->step_done);
    }
}

/* ---- messages to the ranks ---- */

static void told_group(struct model *m, struct model_seq *x, uint32_t g, uint32_t end, bool grew)
{
    const struct block_table *t = &x->tables[g];
    const struct model_table *told = &x->told[g];
    uint32_t block_tokens = tokens_of(m, g), window = window_of(m, g);
    uint32_t n = (end + block_tokens - 1) / block_tokens;
    HOLD(m, told->first == t->first && told->n == t->n);
    HOLD(m, t->n >= n && t->first <= t->n);
    /* When a block is taken, the blocks that left the window must be free, as far as plans have
     * reported the positions to the ranks. */
    if (window && grew && x->n_untold == 0)
        HOLD(m, t->n - t->first <= (end - x->n_scheduled + block_tokens - 1) / block_tokens +
                                       (window + block_tokens - 1) / block_tokens + 1 + (t->n - n));
    if (!window)
        HOLD(m, t->first == 0);
    /* Only this sequence owns the blocks that the run writes. */
    for (uint32_t k = x->n_scheduled / block_tokens; k < t->n && !m->failed; k++) {
        uint32_t owners[MODEL_BLOCKS] = {0}, n_copies;
        const struct plan_copy *copies = blocks_copies(m->b, &n_copies);
        count_owners(m, g, owners);
        /* A copied end block does not count, because others read only the part before it. */
        for (uint32_t i = 0; i < n_copies; i++)
            owners[copies[i].from] -= copies[i].i_group == g;
        HOLD(m, owners[t->ids[k]] == 1);
    }
}

void model_told(struct model *m, struct model_seq *x, uint32_t end, const struct plan_blocks *out,
                uint32_t n)
{
    uint32_t seen = 0, grew = 0; /* sets of KV groups; bit g = group g */
    for (uint32_t i = 0; i < n && !m->failed; i++) {
        HOLD(m, out[i].i_group < m->c.n_groups && !(seen >> out[i].i_group & 1));
        if (m->failed)
            return;
        struct model_table *t = &x->told[out[i].i_group];
        seen |= 1u << out[i].i_group;
        grew |= (uint32_t)(out[i].ids.n > 0) << out[i].i_group;
        t->first += out[i].drop_leading;
        t->n = t->n < t->first ? t->first : t->n;
        HOLD(m, out[i].ids.n <= MODEL_TABLE - t->n);
        for (uint32_t k = 0; k < out[i].ids.n && !m->failed; k++)
            t->ids[t->n++] = out[i].ids.ptr[k];
    }
    for (uint32_t g = 0; g < m->c.n_groups && !m->failed; g++)
        told_group(m, x, g, end, grew >> g & 1);
}

void model_sent(struct model *m)
{
    for (uint32_t g = 0; g < m->c.n_groups; g++)
        for (uint32_t i = 0; i < m->groups[g].n_blocks; i++)
            if (m->blocks[g][i].owners)
                m->blocks[g][i].sent = m->step_sent;
}

/* ---- actions of the ranks ---- */

static uint64_t mix(uint64_t h, uint64_t v)
{
    h = (h ^ v) * 0x9e3779b97f4a7c15ull;
    return h ^ h >> 29;
}

/* Returns the digest that a request's positions start with. Requests share blocks only with
 * equal roots, which means the same tenant and the same adapter. Without caching, the choices of
 * one prompt of a request share. */
static uint64_t root_of(const struct model *m, const struct request *r)
{
    if (m->c.caching)
        return mix(mix(1, r->salt.lo), r->sampling.lora.len);
    return mix(mix(mix(2, r->id.lo), r->id.hi), r->sampling.i_prompt);
}

static uint64_t *place(struct model *m, const struct model_run *run, uint32_t g, uint32_t position)
{
    const struct model_table *t = &run->tables[g];
    uint32_t k = position / tokens_of(m, g);
    HOLD(m, k >= t->first && k < t->n);
    if (m->failed)
        return NULL;
    return &m->blocks[g][t->ids[k]].holds[position % tokens_of(m, g)];
}

void model_run(struct model *m, const struct model_run *run, uint32_t start, uint32_t n_known)
{
    const struct request *r = &run->seq->r;
    uint32_t end = start + run->n_tokens + run->n_draft;
    uint64_t id = root_of(m, r);
    end = end < r->ids_cap - 1 ? end : r->ids_cap - 1;
    HOLD(m, run->follows || start == run->start);
    HOLD(m, start + n_known <= end && start + n_known <= r->n_ids);
    for (uint32_t p = 0; p < end && !m->failed; p++) {
        id = p < start + n_known ? mix(id, r->ids[p]) : ++m->n_garbage << 32;
        for (uint32_t g = 0; g < m->c.n_groups && !m->failed; g++) {
            uint32_t window = window_of(m, g);
            if (p < start && window && p + window < start)
                continue; /* the block is outside the window */
            uint64_t *at = place(m, run, g, p);
            if (at && p >= start)
                *at = id;
            else if (at)
                HOLD(m, *at == id);
        }
    }
}

void model_copy(struct model *m, const struct plan_copy *c)
{
    memcpy(m->blocks[c->i_group][c->to].holds, m->blocks[c->i_group][c->from].holds,
           sizeof m->blocks[0][0].holds);
}

void model_moved(struct model *m, const struct model_move *x, bool write)
{
    uint64_t holds[MODEL_LEN], id = root_of(m, &x->prefix);
    for (uint32_t p = 0; p < x->prefix.n_ids; p++)
        holds[p] = id = mix(id, x->prefix.ids[p]);
    for (uint32_t i = 0; i < x->n && !m->failed; i++) {
        const struct blocks_part *part = &x->parts[i];
        uint32_t n = tokens_of(m, part->i_group);
        uint64_t *at = m->blocks[part->i_group][part->id].holds;
        HOLD(m, (part->index + 1) * n <= x->prefix.n_ids);
        for (uint32_t k = 0; k < n && !m->failed; k++) {
            if (write && !part->was_there)
                at[k] = holds[part->index * n + k];
            else if (!write)
                HOLD(m, at[k] == holds[part->index * n + k]);
        }
    }
}

uint32_t model_sample(const struct model *m, const struct request *r)
{
    uint64_t h = 3;
    for (uint32_t i = r->n_ids > 8 ? r->n_ids - 8 : 0; i < r->n_ids; i++)
        h = mix(h, r->ids[i]);
    return 7 + (uint32_t)(h % 3);
}
