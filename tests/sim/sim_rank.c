/* Implements the simulated rank (sim_rank.h). The simulator's worlds, the policies, the model's
 * ranks and a fuzz target pass it every plan of the scheduler. sim_rank_execute first applies
 * the plan's structure: finished sequences, admissions, copies, drops and appends of blocks,
 * each checked by LEGAL. Then it runs the plan's runs in order: each run reads the KV memory of
 * its positions, writes its own, and gets tokens from the null rule. The answer is a msg_result.
 * The first illegal step fills err and stops the rank. The rank owns all memory of its answers,
 * which alternate between N_RESULTS sets. It shares no code with the scheduler. One thread runs
 * everything. */
#include "tests/sim/sim_rank.h"

#include <assert.h>
#include <string.h>

#include "common/base/mem.h"
#include "proto/plan_digest.h"

enum { MAX_GROUPS = 8, N_RESULTS = 2 };

struct table {
    uint32_t *ids; /* blocks by logical index; [first, n) are held */
    uint32_t first, n;
};

struct slot {
    /* ran: the sequence ran in this plan; admitted: it was admitted in it */
    bool active, ran, admitted;
    uint64_t serial;         /* number of the sequence's admission, used as the writer of blocks */
    uint64_t draft_step;     /* last step that granted draft tokens to the sequence; 0 = none */
    uint32_t n_ids, max_ids; /* max_ids: sum of the prompt and max_tokens */
    uint32_t length;         /* positions computed by the sequence itself or found in the cache */
    bool has_grammar;
    bool whole_prompt; /* the request has prompt_logprobs, so no position may be skipped */
    uint32_t n_prompt;
    uint32_t *ids;    /* ids of the admission and of the sampled tokens */
    uint64_t *prefix; /* prefix[p]: hash of ids[0 .. p], which KV memory must hold at p */
    uint64_t adapter; /* start value of the hash for an adapter's KV cache */
    struct null_hash hash;
    struct table tables[MAX_GROUPS];
};

struct block {
    uint32_t n_owners;   /* active tables that hold the block */
    uint64_t last_owned; /* last step in which an active table held the block */
    uint64_t writer;     /* sequence that got the block fresh; no other may write the block */
    uint64_t fresh_in;   /* step that gave the block to the writer */
    uint64_t copied_to;  /* last step that copied another block into this block */
    uint64_t *content;   /* content by position in the block; 0 = never written */
};

struct group {
    struct kv_group k;
    struct block *blocks;
    uint64_t *content;
};

struct sim_rank {
    struct sim_rank_config c;
    struct group groups[MAX_GROUPS];
    struct slot *slots;
    uint64_t term_epoch, step, step_done, n_admitted;
    struct result_item *items[N_RESULTS];
    uint32_t *tokens[N_RESULTS]; /* arrays of max_num_seqs * (n_draft + 1) ids */
    float *gaps;
    /* arrays of max_num_batched_tokens rows, with their ids and values */
    struct logprob_row *rows[N_RESULTS];
    uint32_t *row_ids[N_RESULTS];
    float *row_values[N_RESULTS];
    uint32_t n_rows;
    struct error *err;
};

#define LEGAL(rank, cond) legal((rank), (cond), #cond, __LINE__)

static bool legal(struct sim_rank *rank, bool ok, const char *text, int line)
{
    if (!ok)
        error_set(rank->err, STATUS_PROTOCOL, "plan %llu is illegal: %s is false (sim_rank.c:%d)",
                  (unsigned long long)rank->step, text, line);
    return ok;
}

struct sim_rank *sim_rank_new(const struct sim_rank_config *c)
{
    assert(c->n_draft <= SIM_RANK_MAX_DRAFT);
    struct sim_rank *rank = mem_zalloc(sizeof *rank);
    rank->c = *c;
    rank->slots = mem_array(c->max_num_seqs, sizeof *rank->slots);
    for (uint32_t i = 0; i < c->n_kv_groups; i++) {
        struct group *g = &rank->groups[i];
        g->k = c->kv_groups[i];
        g->blocks = mem_array(g->k.n_blocks, sizeof *g->blocks);
        g->content = mem_array((size_t)g->k.n_blocks * g->k.block_tokens, sizeof *g->content);
        for (uint32_t b = 0; b < g->k.n_blocks; b++)
            g->blocks[b].content = g->content + (size_t)b * g->k.block_tokens;
    }
    for (uint32_t s = 0; s < c->max_num_seqs; s++) {
        rank->slots[s].prefix = mem_array(c->max_model_len + 1, sizeof *rank->slots[s].prefix);
        rank->slots[s].ids = mem_array(c->max_model_len, sizeof *rank->slots[s].ids);
        for (uint32_t i = 0; i < c->n_kv_groups; i++)
            rank->slots[s].tables[i].ids =
                mem_array(c->max_model_len / rank->groups[i].k.block_tokens + 1, sizeof(uint32_t));
    }
    size_t n_tokens = (size_t)c->max_num_seqs * (c->n_draft + 1);
    for (int i = 0; i < N_RESULTS; i++) {
        rank->items[i] = mem_array(c->max_num_seqs, sizeof *rank->items[i]);
        rank->tokens[i] = mem_array(n_tokens, sizeof *rank->tokens[i]);
        rank->rows[i] = mem_array(c->max_num_batched_tokens, sizeof *rank->rows[i]);
        rank->row_ids[i] = mem_array(c->max_num_batched_tokens, sizeof *rank->row_ids[i]);
        rank->row_values[i] = mem_array(c->max_num_batched_tokens, sizeof *rank->row_values[i]);
    }
    rank->gaps = mem_array(c->n_draft + 1, sizeof *rank->gaps);
    for (uint32_t i = 0; i <= c->n_draft; i++)
        rank->gaps[i] = 1;
    return rank;
}

void sim_rank_free(struct sim_rank *rank)
{
    if (!rank)
        return;
    for (uint32_t s = 0; s < rank->c.max_num_seqs; s++) {
        mem_free(rank->slots[s].prefix);
        mem_free(rank->slots[s].ids);
        for (uint32_t i = 0; i < rank->c.n_kv_groups; i++)
            mem_free(rank->slots[s].tables[i].ids);
    }
    for (uint32_t i = 0; i < rank->c.n_kv_groups; i++) {
        mem_free(rank->groups[i].blocks);
        mem_free(rank->groups[i].content);
    }
    for (int i = 0; i < N_RESULTS; i++) {
        mem_free(rank->items[i]);
        mem_free(rank->tokens[i]);
        mem_free(rank->rows[i]);
        mem_free(rank->row_ids[i]);
        mem_free(rank->row_values[i]);
    }
    mem_free(rank->gaps);
    mem_free(rank->slots);
    mem_free(rank);
}

static void drop_slot(struct sim_rank *rank, struct slot *x)
{
    for (uint32_t i = 0; i < rank->c.n_kv_groups; i++) {
        struct table *t = &x->tables[i];
        for (; t->first < t->n; t->first++)
            rank->groups[i].blocks[t->ids[t->first]].n_owners--;
        t->first = t->n = 0;
    }
    x->active = false;
}

void sim_rank_reset(struct sim_rank *rank, uint64_t term_epoch)
{
    for (uint32_t s = 0; s < rank->c.max_num_seqs; s++)
        if (rank->slots[s].active)
            drop_slot(rank, &rank->slots[s]);
    for (uint32_t i = 0; i < rank->c.n_kv_groups; i++) {
        struct group *g = &rank->groups[i];
        memset(g->content, 0, (size_t)g->k.n_blocks * g->k.block_tokens * sizeof *g->content);
        for (uint32_t b = 0; b < g->k.n_blocks; b++)
            g->blocks[b].last_owned = g->blocks[b].fresh_in = g->blocks[b].copied_to = 0;
    }
    rank->term_epoch = term_epoch;
    rank->step = 0;
}

/* ---- structure of a plan ---- */

static void push_id(struct slot *x, uint32_t id)
{
    struct null_hash prefix = {x->n_ids ? x->prefix[x->n_ids - 1] : x->adapter};
    null_hash_push(&prefix, id);
    null_hash_push(&x->hash, id);
    x->prefix[x->n_ids++] = prefix.h;
}

static bool apply_finished(struct sim_rank *rank, const struct msg_plan *plan)
{
    for (uint32_t i = 0; i < plan->finished.n; i++) {
        uint32_t slot = plan->finished.ptr[i];
        if (!LEGAL(rank, slot < rank->c.max_num_seqs) || !LEGAL(rank, rank->slots[slot].active))
            return false;
        drop_slot(rank, &rank->slots[slot]);
    }
    return true;
}

static bool apply_admit(struct sim_rank *rank, const struct plan_admit *a)
{
    if (!LEGAL(rank, a->slot < rank->c.max_num_seqs) ||
        !LEGAL(rank, !rank->slots[a->slot].active) || !LEGAL(rank, a->n_prompt >= 1) ||
        !LEGAL(rank, a->n_prompt <= a->ids.n) || !LEGAL(rank, a->n_computed < a->ids.n) ||
        !LEGAL(rank, a->ids.n < rank->c.max_model_len))
        return false;
    if (!LEGAL(rank, a->sampling.n_prompt_logprobs < 0 || a->n_computed == 0))
        return false;
    struct slot *x = &rank->slots[a->slot];
    x->active = x->admitted = true;
    x->serial = ++rank->n_admitted;
    x->draft_step = 0;
    x->adapter = 1 + a->sampling.lora.len;
    x->n_ids = 0;
    x->max_ids = a->n_prompt + a->sampling.max_tokens;
    x->length = a->n_computed;
    x->whole_prompt = a->sampling.n_prompt_logprobs >= 0;
    x->has_grammar = a->sampling.grammar_kind != GRAMMAR_NONE;
    x->n_prompt = a->n_prompt;
    memcpy(x->ids, a->ids.ptr, a->ids.n * sizeof *x->ids);
    null_hash_init(&x->hash, a->sampling.seed, a->sampling.i_prompt, a->sampling.i_choice,
                   a->sampling.temperature);
    for (uint32_t i = 0; i < a->ids.n; i++)
        push_id(x, a->ids.ptr[i]);
    return true;
}

/* Applies the copies. They happen before any run, possibly all at once, so no block that is
 * written here may be read here. A run that reads wrong contents fails. */
static bool apply_copies(struct sim_rank *rank, const struct msg_plan *plan)
{
    for (uint32_t i = 0; i < plan->n_copies; i++) {
        const struct plan_copy *c = &plan->copies[i];
        if (!LEGAL(rank, c->i_group < rank->c.n_kv_groups))
            return false;
        struct group *g = &rank->groups[c->i_group];
        if (!LEGAL(rank, c->from < g->k.n_blocks) || !LEGAL(rank, c->to < g->k.n_blocks) ||
            !LEGAL(rank, g->blocks[c->to].copied_to != rank->step))
            return false;
        g->blocks[c->to].copied_to = rank->step;
    }
    for (uint32_t i = 0; i < plan->n_copies; i++) {
        const struct plan_copy *c = &plan->copies[i];
        struct group *g = &rank->groups[c->i_group];
        if (!LEGAL(rank, g->blocks[c->from].copied_to != rank->step))
            return false;
        memcpy(g->blocks[c->to].content, g->blocks[c->from].content,
               g->k.block_tokens * sizeof(uint64_t));
    }
    return true;
}

/* Checks that each copy's target is fresh in this plan and has one owner. */
static bool copies_have_owners(struct sim_rank *rank, const struct msg_plan *plan)
{
    for (uint32_t i = 0; i < plan->n_copies; i++) {
        const struct plan_copy *c = &plan->copies[i];
        const struct block *b = &rank->groups[c->i_group].blocks[c->to];
        if (!LEGAL(rank, b->n_owners == 1) || !LEGAL(rank, b->fresh_in == rank->step))
            return false;
    }
    return true;
}

static bool append_block(struct sim_rank *rank, struct slot *x, const struct plan_run *run,
                         uint32_t i_group, uint32_t id)
{
    struct group *g = &rank->groups[i_group];
    struct table *t = &x->tables[i_group];
    if (!LEGAL(rank, id < g->k.n_blocks) ||
        !LEGAL(rank, t->n <= rank->c.max_model_len / g->k.block_tokens))
        return false;
    for (uint32_t k = t->first; k < t->n; k++)
        if (!LEGAL(rank, t->ids[k] != id))
            return false;
    struct block *b = &g->blocks[id];
    /* A block wholly before the run was found in the cache, so others may hold it and have
     * written it. */
    bool found = (t->n + 1) * g->k.block_tokens <= run->start && b->copied_to != rank->step;
    /* Any other block is fresh: no table holds it, and no step in flight may still use it. */
    if (!found &&
        (!LEGAL(rank, b->n_owners == 0) || !LEGAL(rank, b->last_owned <= rank->step_done)))
        return false;
    if (!found) {
        b->writer = x->serial;
        b->fresh_in = rank->step;
    }
    b->n_owners++;
    t->ids[t->n++] = id;
    return true;
}

/* Applies the drops of a run. The drops of all runs precede all appends, so a block may change
 * owners within a plan. */
static bool apply_drops(struct sim_rank *rank, struct slot *x, const struct plan_run *run)
{
    uint32_t seen = 0;
    for (uint32_t i = 0; i < run->n_blocks; i++) {
        const struct plan_blocks *pb = &run->blocks[i];
        if (!LEGAL(rank, pb->i_group < rank->c.n_kv_groups) ||
            !LEGAL(rank, !(seen & 1u << pb->i_group)))
            return false;
        seen |= 1u << pb->i_group;
        struct table *t = &x->tables[pb->i_group];
        uint32_t bt = rank->groups[pb->i_group].k.block_tokens;
        if (!LEGAL(rank, pb->drop_leading <= t->n - t->first ||
                             t->first + pb->drop_leading <= run->start / bt))
            return false;
        uint32_t held = t->n - t->first, drop = pb->drop_leading;
        for (uint32_t k = 0; k < drop && k < held; k++)
            rank->groups[pb->i_group].blocks[t->ids[t->first++]].n_owners--;
        if (drop > held) /* the run is a hit on the way, beyond the table's end */
            t->first = t->n = t->first + (drop - held);
    }
    return true;
}

static bool apply_appends(struct sim_rank *rank, struct slot *x, const struct plan_run *run)
{
    for (uint32_t i = 0; i < run->n_blocks; i++)
        for (uint32_t k = 0; k < run->blocks[i].ids.n; k++)
            if (!append_block(rank, x, run, run->blocks[i].i_group, run->blocks[i].ids.ptr[k]))
                return false;
    return true;
}

static bool check_run(struct sim_rank *rank, const struct plan_run *run)
{
    if (!LEGAL(rank, run->slot < rank->c.max_num_seqs) ||
        !LEGAL(rank, rank->slots[run->slot].active) || !LEGAL(rank, !rank->slots[run->slot].ran))
        return false;
    struct slot *x = &rank->slots[run->slot];
    bool place_unknown =
        /* the head does not know the length while draft tokens are in flight */
        x->draft_step > rank->step_done;
    x->ran = true;
    if (!LEGAL(rank, run->n_tokens >= 1) || !LEGAL(rank, run->follows == place_unknown) ||
        !LEGAL(rank, run->start < rank->c.max_model_len) ||
        !LEGAL(rank, run->n_tokens < rank->c.max_model_len - run->start) ||
        !LEGAL(rank, run->n_draft <= rank->c.n_draft) ||
        !LEGAL(rank, !run->n_draft || (run->sample && run->n_tokens == 1)))
        return false;
    if (run->follows) {
        if (!LEGAL(rank, run->sample && run->n_tokens == 1) ||
            !LEGAL(rank, run->start + 1 <= x->n_ids))
            return false;
    } else {
        if (!LEGAL(rank, run->start >= x->length) ||
            !LEGAL(rank, !x->whole_prompt || run->start == x->length) ||
            !LEGAL(rank, run->start + run->n_tokens <= x->n_ids) ||
            !LEGAL(rank, run->sample == (run->start + run->n_tokens == x->n_ids)) ||
            !LEGAL(rank, !run->sample || x->n_ids < x->max_ids))
            return false;
        x->length = run->start + run->n_tokens; /* accepted draft tokens will add to this length */
    }
    if (run->n_draft)
        x->draft_step = rank->step;
    return apply_drops(rank, x, run);
}

static bool check_drafts(struct sim_rank *rank, const struct msg_plan *plan)
{
    uint32_t n_drafting = 0;
    for (uint32_t i = 0; i < plan->n_runs; i++)
        n_drafting += plan->runs[i].n_draft > 0;
    return LEGAL(rank, rank->c.draft_max_seqs == 0 || n_drafting <= rank->c.draft_max_seqs);
}

/* Checks the digest. Its lengths count the tokens of this plan, not the draft tokens that the
 * plan may add. */
static bool check_digest(struct sim_rank *rank, const struct msg_plan *plan)
{
    uint64_t sum = 0;
    if (rank->step % PLAN_DIGEST_EVERY != 0)
        return LEGAL(rank, plan->digest == 0);
    for (uint32_t i = 0; i < plan->n_runs; i++)
        /* with draft tokens in flight, the head cannot know the lengths */
        if (!LEGAL(rank, !plan->runs[i].follows))
            return false;
    for (uint32_t s = 0; s < rank->c.max_num_seqs; s++) {
        const struct slot *x = &rank->slots[s];
        if (!x->active)
            continue;
        if (!LEGAL(rank, x->ran || x->draft_step <= rank->step_done))
            return false;
        sum += plan_digest_sequence(s, x->length);
        for (uint32_t i = 0; i < rank->c.n_kv_groups; i++)
            for (uint32_t k = x->tables[i].first; k < x->tables[i].n; k++)
                sum += plan_digest_block(s, i, k, x->tables[i].ids[k]);
    }
    return LEGAL(rank, plan->digest == plan_digest_end(sum));
}

/* ---- running ---- */

/* Describes the actual work of a run: positions start to end - 1, of which the last n_drafted
 * are draft tokens. */
struct work {
    uint32_t start, end, n_drafted, n_right;
    uint64_t prefix[SIM_RANK_MAX_DRAFT + 1]; /* hashes of the last id and the draft tokens */
};

static bool run_group(struct sim_rank *rank, struct slot *x, const struct work *k, uint32_t i_group)
{
    struct group *g = &rank->groups[i_group];
    const struct table *t = &x->tables[i_group];
    uint32_t bt = g->k.block_tokens, from = 0, n_known = k->end - k->n_drafted;
    if (g->k.kind == KV_WINDOW && k->start >= g->k.window_tokens)
        from = k->start - g->k.window_tokens + 1;
    if (!LEGAL(rank, t->first * bt <= from) || !LEGAL(rank, t->n * bt >= k->end))
        return false;
    for (uint32_t p = from; p < k->start; p++)
        if (!LEGAL(rank, g->blocks[t->ids[p / bt]].content[p % bt] == x->prefix[p]))
            return false;
    for (uint32_t p = k->start; p < k->end; p++) {
        struct block *b = &g->blocks[t->ids[p / bt]];
        /* No sequence writes a block that another sequence may read. Other sequences found the
         * block in the cache or wait for it. */
        if (!LEGAL(rank, b->writer == x->serial))
            return false;
        b->content[p % bt] = p < n_known ? x->prefix[p] : k->prefix[p - n_known + 1];
    }
    return true;
}

/* Limits the draft tokens of a run to the positions that have blocks. The head has granted
 * blocks up to the furthest position. */
static bool clamp_drafts(struct sim_rank *rank, const struct slot *x, const struct plan_run *run,
                         uint32_t *out)
{
    uint32_t n = run->n_draft,
             /* tokens that fit after the token that is sampled in any case */
        left = x->max_ids - x->n_ids - 1;
    n = n < left ? n : left;
    left = rank->c.max_model_len - x->n_ids - 1;
    n = n < left ? n : left;
    for (uint32_t i = 0; i < rank->c.n_kv_groups; i++)
        if (!LEGAL(rank, x->tables[i].n * rank->groups[i].k.block_tokens >= x->n_ids + n))
            return false;
    *out = n;
    return true;
}

static uint32_t throw_dice(struct null_hash *h, uint32_t n_sides)
{
    null_hash_push(h, n_sides);
    return (uint32_t)((h->h ^ h->h >> 32) * 0x9E3779B97F4A7C15ull >> 33) % n_sides;
}

/* Makes draft tokens up to n ids. A hash of the history decides which of them are accepted, and
 * how many are made. */
static void draft_token(const struct sim_rank *rank, const struct slot *x, uint32_t n,
                        struct work *k)
{
    struct null_hash truth = x->hash, prefix = {x->prefix[x->n_ids - 1]};
    struct null_hash dice = x->hash;
    k->n_drafted = rank->c.drafts_all ? n : throw_dice(&dice, n + 1);
    k->n_right = 0;
    for (uint32_t i = 1; i <= k->n_drafted; i++) {
        uint32_t id = null_hash_token(&truth, rank->c.vocab_size);
        null_hash_push(&truth, id);
        bool right = throw_dice(&dice, 100) < rank->c.draft_percent;
        if (right && k->n_right == i - 1)
            k->n_right = i;
        null_hash_push(&prefix, right ? id : UINT32_MAX);
        k->prefix[i] = prefix.h;
    }
    k->end += k->n_drafted;
}

uint32_t sim_rank_n_kept(const struct null_hash *before, uint32_t n, uint32_t draft_percent)
{
    struct null_hash dice = *before;
    uint32_t i = 0;
    while (i < n && throw_dice(&dice, 100) < draft_percent)
        i++;
    return i;
}

static float score_of(uint64_t prefix)
{
    return -(float)(prefix % 4096);
}

float sim_rank_prompt_logprobs(const uint32_t *ids, uint32_t n, uint32_t n_adapter_bytes)
{
    struct null_hash h = {1 + n_adapter_bytes};
    for (uint32_t i = 0; i < n; i++)
        null_hash_push(&h, ids[i]);
    return score_of(h.h);
}

/* Makes the rows of prompt_logprobs. Each row is computed from all ids up to its own. */
static void score(struct sim_rank *rank, const struct slot *x, const struct plan_run *run,
                  struct result_item *out)
{
    uint32_t i_result = rank->step % N_RESULTS;
    out->prompt_logprobs = rank->rows[i_result] + rank->n_rows;
    for (uint32_t p = run->start; p < run->start + run->n_tokens && p + 1 < x->n_prompt; p++) {
        uint32_t i = rank->n_rows++;
        rank->row_ids[i_result][i] = x->ids[p + 1];
        rank->row_values[i_result][i] = score_of(x->prefix[p + 1]);
        rank->rows[i_result][i] =
            (struct logprob_row){.ids = {&rank->row_ids[i_result][i], 1},
                                 .values = {&rank->row_values[i_result][i], 1},
                                 .chosen_rank = 1};
        out->n_prompt_logprobs++;
    }
}

static bool run_one(struct sim_rank *rank, const struct plan_run *run, struct msg_result *out)
{
    struct slot *x = &rank->slots[run->slot];
    struct work k = {.start = run->start, .end = run->start + run->n_tokens};
    uint32_t n_room, i_result = rank->step % N_RESULTS, n_sampled = 0;
    uint32_t *tokens =
        /* `ids` are the ids of this item. */
        rank->tokens[i_result] + (size_t)out->n_items * (rank->c.n_draft + 1);
    bool nothing = run->follows && x->n_ids == x->max_ids;
    if (run->follows)
        k.start = x->n_ids - 1, k.end = x->n_ids;
    if (run->sample && !nothing) {
        if (!clamp_drafts(rank, x, run, &n_room))
            return false;
        draft_token(rank, x, n_room, &k);
        n_sampled = 1 + k.n_right;
    }
    for (uint32_t g = 0; g < rank->c.n_kv_groups && !nothing; g++)
        if (!run_group(rank, x, &k, g))
            return false;
    for (uint32_t i = 0; i < n_sampled; i++) {
        tokens[i] = null_hash_token(&x->hash, rank->c.vocab_size);
        push_id(x, tokens[i]);
    }
    struct result_item item = {
        .slot = run->slot, .ids = {tokens, n_sampled}, .gaps = {rank->gaps, n_sampled}};
    item.matcher_kib = x->has_grammar ? 4096 + 64 * x->n_ids : 0; /* a text of 512 ids has 36 MiB */
    if (x->whole_prompt)
        score(rank, x, run, &item);
    if (run->sample)
        x->length = x->n_ids - 1;
    out->n_drafted += k.n_drafted;
    if (run->sample || item.n_prompt_logprobs > 0)
        rank->items[i_result][out->n_items++] = item;
    return true;
}

/* Runs the plan's runs in order, because a run may use blocks that an earlier run writes. */
static bool run_plan(struct sim_rank *rank, const struct msg_plan *plan, struct msg_result *out)
{
    out->items = rank->items[rank->step % N_RESULTS];
    rank->n_rows = 0;
    for (uint32_t i = 0; i < plan->n_runs; i++)
        if (!run_one(rank, &plan->runs[i], out))
            return false;
    return true;
}

/* Ends the plan. Every active table holds its blocks through this step, and each admit must have
 * a run. */
static bool close_plan(struct sim_rank *rank)
{
    for (uint32_t s = 0; s < rank->c.max_num_seqs; s++) {
        struct slot *x = &rank->slots[s];
        if (!LEGAL(rank, !x->admitted || x->ran))
            return false;
        x->admitted = x->ran = false;
        for (uint32_t i = 0; x->active && i < rank->c.n_kv_groups; i++)
            for (uint32_t k = x->tables[i].first; k < x->tables[i].n; k++)
                rank->groups[i].blocks[x->tables[i].ids[k]].last_owned = rank->step;
    }
    return true;
}

bool sim_rank_execute(struct sim_rank *rank, const struct msg_plan *plan, uint64_t step_done,
                      struct msg_result *out, struct error *err)
{
    uint64_t n_tokens = 0;
    rank->err = err;
    rank->step_done = step_done;
    rank->step++;
    if (!LEGAL(rank, plan->term_epoch == rank->term_epoch) ||
        !LEGAL(rank, plan->step == rank->step) || !LEGAL(rank, plan->n_runs >= 1) ||
        !LEGAL(rank, plan->n_runs <= rank->c.max_num_seqs))
        return false;
    for (uint32_t s = 0; plan->full && s < rank->c.max_num_seqs; s++)
        if (rank->slots[s].active)
            drop_slot(rank, &rank->slots[s]);
    if (!apply_finished(rank, plan) || !apply_copies(rank, plan))
        return false;
    for (uint32_t i = 0; i < plan->n_admits; i++)
        if (!apply_admit(rank, &plan->admits[i]))
            return false;
    for (uint32_t i = 0; i < plan->n_runs; i++) {
        if (!check_run(rank, &plan->runs[i]))
            return false;
        n_tokens += plan->runs[i].n_tokens + plan->runs[i].n_draft;
    }
    for (uint32_t i = 0; i < plan->n_runs; i++)
        if (!apply_appends(rank, &rank->slots[plan->runs[i].slot], &plan->runs[i]))
            return false;
    *out = (struct msg_result){.term_epoch = rank->term_epoch, .step = rank->step};
    return LEGAL(rank, n_tokens <= rank->c.max_num_batched_tokens) && check_drafts(rank, plan) &&
           copies_have_owners(rank, plan) && check_digest(rank, plan) &&
           run_plan(rank, plan, out) && close_plan(rank);
}

uint32_t sim_rank_n_active(const struct sim_rank *rank)
{
    uint32_t n = 0;
    for (uint32_t s = 0; s < rank->c.max_num_seqs; s++)
        n += rank->slots[s].active;
    return n;
}

bool sim_rank_moved(struct sim_rank *rank, uint32_t i_group, uint32_t block, uint32_t index,
                    const uint32_t *ids, uint32_t n_adapter_bytes, bool write)
{
    struct group *g = &rank->groups[i_group];
    struct null_hash h = {1 + n_adapter_bytes};
    uint32_t bt = g->k.block_tokens;
    for (uint32_t p = 0; p < (index + 1) * bt; p++) {
        null_hash_push(&h, ids[p]);
        if (p < index * bt)
            continue;
        uint64_t *at = &g->blocks[block].content[p % bt];
        if (!write && *at != h.h)
            return false;
        *at = h.h;
    }
    return true;
}

void sim_rank_copy_block(const struct sim_rank *from, struct sim_rank *to, uint32_t i_group,
                         uint32_t a, uint32_t b)
{
    uint32_t n = to->groups[i_group].k.block_tokens;
    for (uint32_t i = 0; i < n; i++)
        to->groups[i_group].blocks[b].content[i] =
            from ? from->groups[i_group].blocks[a].content[i] : ~(uint64_t)i;
}
