#include "worker/sequences/ngram.h"

#include <string.h>

#include "common/base/mem.h"

enum { MIN_BITS = 6, MAX_BITS = 28 };

void draft_ngram_reset(struct draft_ngram *d)
{
    d->bits = d->n_indexed = 0;
}

void draft_ngram_fini(struct draft_ngram *d)
{
    mem_free(d->heads);
    mem_free(d->links);
    *d = (struct draft_ngram){0};
}

static uint32_t hash_at(const struct draft_ngram *d, const uint32_t *ids, uint32_t end, uint32_t n)
{
    uint64_t h = 0;
    for (uint32_t i = end + 1 - n; i <= end; i++)
        h = (h ^ ids[i]) * 0x9E3779B97F4A7C15ull;
    return (uint32_t)(h >> (64 - d->bits));
}

static bool room_for(uint32_t **array, uint32_t *cap, uint64_t need, uint32_t n_kept)
{
    if (need <= *cap)
        return true;
    uint64_t want = *cap ? (uint64_t)*cap * 2 : 64;
    want = want < need ? need : want;
    uint32_t *fresh = mem_try_array(want, sizeof *fresh);
    if (!fresh)
        return false;
    if (n_kept > 0)
        memcpy(fresh, *array, n_kept * sizeof *fresh);
    mem_free(*array);
    *array = fresh;
    *cap = (uint32_t)want;
    return true;
}

/* Allocates as many heads as ids, so that chains stay short. The number depends only on the
 * number of ids: a chain is walked only to a limit, and the result must not depend on earlier
 * uses of this memory. */
static bool size_heads(struct draft_ngram *d, uint32_t n_ids)
{
    uint32_t bits = d->bits > MIN_BITS ? d->bits : MIN_BITS;
    while (bits < MAX_BITS && n_ids > 1u << bits)
        bits++;
    if (bits == d->bits)
        return true;
    if (!room_for(&d->heads, &d->heads_cap, 1ull << bits, 0))
        return false;
    memset(d->heads, 0, sizeof *d->heads << bits);
    d->bits = bits;
    d->n_indexed = 0;
    return true;
}

/* Adds the places up to `end` (exclusive) to the index. */
static void index_ids(struct draft_ngram *d, uint32_t n_min, const uint32_t *ids, uint32_t end)
{
    for (uint32_t i = d->n_indexed; i < end; i++) {
        d->links[i] = 0;
        if (i + 1 < n_min)
            continue;
        uint32_t *head = &d->heads[hash_at(d, ids, i, n_min)];
        d->links[i] = *head;
        *head = i + 1;
    }
    if (end > d->n_indexed)
        d->n_indexed = end;
}

/* Returns how many ids that end at `a` and at `b` are equal, at most n_max; a < b. */
static uint32_t common_suffix(const uint32_t *ids, uint32_t a, uint32_t b, uint32_t n_max)
{
    uint32_t n = 0;
    while (n < n_max && n <= a && ids[a - n] == ids[b - n])
        n++;
    return n;
}

/* Returns the place after the best match; 0 = no match. */
static uint32_t find(const struct draft_ngram *d, const struct draft_ngram_config *c,
                     const uint32_t *ids, uint32_t last)
{
    uint32_t best = c->n_min - 1, found = 0;
    uint32_t at = d->heads[hash_at(d, ids, last, c->n_min)];
    for (uint32_t i = 0; at > 0 && best < c->n_max && i < DRAFT_NGRAM_MAX_LINKS; i++) {
        uint32_t n = common_suffix(ids, at - 1, last, c->n_max);
        if (n > best) {
            best = n;
            found = at;
        }
        at = d->links[at - 1];
    }
    return found;
}

enum status draft_ngram_propose(struct draft_ngram *d, const struct draft_ngram_config *c,
                                uint32_t *ids, uint32_t n_ids, uint32_t n_max, uint32_t *n,
                                struct error *err)
{
    *n = 0;
    if (n_ids <= c->n_min)
        return STATUS_OK;
    uint32_t last = n_ids - 1; /* the last id is not in the index, because no id follows it yet */
    if (!size_heads(d, n_ids) || !room_for(&d->links, &d->links_cap, last, d->n_indexed))
        return error_set(err, STATUS_NO_MEMORY,
                         "not enough memory for the n-grams of %u ids. Free memory on this machine",
                         n_ids);
    index_ids(d, c->n_min, ids, last);
    uint32_t from = find(d, c, ids, last);
    if (from == 0)
        return STATUS_OK;
    uint32_t n_sure = common_suffix(ids, from - 1, last, 2 * n_max) / 2;
    *n = n_sure > n_max ? n_max : n_sure > 1 ? n_sure : n_max > 0;
    for (uint32_t i = 0; i < *n; i++)
        ids[n_ids + i] = ids[from + i];
    return STATUS_OK;
}
