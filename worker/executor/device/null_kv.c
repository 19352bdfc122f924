#include "worker/executor/device/null_kv.h"

#include <string.h>

#include "common/base/mem.h"
#include "proto/null_tokens.h"

/* `chain` holds the number of positions of a sequence that were computed or found in the prefix
 * cache, and the hash of their ids. */
struct chain {
    uint64_t serial;
    struct null_hash hash;
    uint32_t n;
};

struct null_kv {
    uint64_t *blocks; /* hash of each block, [n_blocks]; 0 = not filled */
    uint32_t n_blocks, block_tokens;
    struct chain *chains; /* chains by slot, [n_chains] */
    uint32_t n_chains;
};

struct null_kv *null_kv_new(uint32_t n_blocks, uint32_t block_tokens)
{
    struct null_kv *k = mem_zalloc(sizeof *k);
    k->blocks = mem_try_array(n_blocks, sizeof *k->blocks);
    k->n_blocks = n_blocks;
    k->block_tokens = block_tokens;
    if (k->blocks)
        return k;
    mem_free(k);
    return NULL;
}

void null_kv_free(struct null_kv *k)
{
    if (!k)
        return;
    mem_free(k->blocks);
    mem_free(k->chains);
    mem_free(k);
}

void null_kv_view(const struct null_kv *k, struct kv_view *out)
{
    *out = (struct kv_view){.n_groups = 1, .lags = true};
    out->groups[0] = (struct kv_view_group){.pieces = {{(uint8_t *)k->blocks, sizeof *k->blocks}},
                                            .n_pieces = 1,
                                            .n_blocks = k->n_blocks};
}

static bool grow(struct null_kv *k, uint32_t slot)
{
    if (slot < k->n_chains)
        return true;
    uint32_t want = k->n_chains ? k->n_chains : 64;
    while (want <= slot)
        want *= 2;
    struct chain *chains = mem_try_array(want, sizeof *chains);
    if (!chains)
        return false;
    if (k->n_chains > 0)
        memcpy(chains, k->chains, k->n_chains * sizeof *chains);
    mem_free(k->chains);
    k->chains = chains;
    k->n_chains = want;
    return true;
}

static struct chain *chain_of(struct null_kv *k, const struct sequence *q)
{
    struct chain *c = &k->chains[q->slot];
    if (c->serial != q->serial) {
        *c = (struct chain){.serial = q->serial};
        null_hash_init(&c->hash, 0, 0, 0, 0);
    }
    return c;
}

/* Returns the block that holds position p of the sequence. */
static uint64_t *block_of(struct null_kv *k, const struct sequence *q, uint32_t p)
{
    return &k->blocks[q->tables[0].ids[p / k->block_tokens]];
}

/* Advances the chain to n positions. Blocks before position `found` must be filled already and
 * are checked. The others are filled. */
static enum status advance(struct null_kv *k, const struct sequence *q, uint32_t found, uint32_t n,
                           struct error *err)
{
    struct chain *c = chain_of(k, q);
    for (; c->n < n; c->n++) {
        null_hash_push(&c->hash, q->ids[c->n]);
        if ((c->n + 1) % k->block_tokens != 0)
            continue;
        uint64_t *block = block_of(k, q, c->n);
        if (c->n >= found)
            *block = c->hash.h;
        else if (*block != c->hash.h)
            return error_set(err, STATUS_PROTOCOL,
                             "slot %u: a run starts at position %u, but block %u does not have the "
                             "KV of the sequence's ids up to position %u: %s. Report this bug",
                             q->slot, found, q->tables[0].ids[c->n / k->block_tokens], c->n,
                             *block == 0 ? "the block was never filled"
                                         : "the block has the KV of another sequence");
    }
    return STATUS_OK;
}

enum status null_kv_run(struct null_kv *k, const struct msg_plan *p, struct sequence_runs runs,
                        struct error *err)
{
    for (uint32_t i = 0; i < p->n_copies; i++)
        k->blocks[p->copies[i].to] = k->blocks[p->copies[i].from];
    for (uint32_t i = 0; i < runs.n; i++) {
        const struct sequence_run *r = &runs.ptr[i];
        if (!grow(k, r->q->slot))
            return error_set(err, STATUS_NO_MEMORY,
                             "not enough memory for slot %u. Free memory on this machine",
                             r->q->slot);
        if (r->n_tokens > 0)
            TRY(advance(k, r->q, r->start, r->start + r->n_tokens, err));
    }
    return STATUS_OK;
}

void null_kv_sampled(struct null_kv *k, struct sequence_runs runs)
{
    struct error err;
    /* advance cannot fail here, because with found = 0 no block is checked */
    for (uint32_t i = 0; i < runs.n; i++)
        if (runs.ptr[i].n_tokens > 0)
            (void)!advance(k, runs.ptr[i].q, 0, runs.ptr[i].q->n_computed, &err);
}
