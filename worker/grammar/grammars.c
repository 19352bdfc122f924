/* Makes the masks of sequences with a grammar, on the sampling rank. step/host_sample.c enters a
 * sequence, then requests masks per place. This file passes the generated ids to the sequence's
 * matcher (text/). It returns allowed ids, costs, and the reason when a grammar allows no id.
 * Invariants: one matcher per slot, identified by the serial number of the sequence;
 * grammars_leave frees it before the slot is reused. The compute thread enters and leaves;
 * grammars_mask may run on several threads, each with its own sequence. The compiler is
 * borrowed. */
#include "worker/grammar/grammars.h"

#include <stdatomic.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/mem.h"
#include "text/text.h"

#define ID_UNITS 20 /* cost of one id in a matcher, in mask units: 1 to 2 us measured */

/* `standing` is the state of the grammar of the sequence in a slot. */
struct standing {
    uint64_t serial; /* serial number of the sequence; 0 = none */
    /* NULL = no matcher could be made, or the text violated the grammar */
    struct text_matcher *matcher;
    uint32_t n_taken; /* number of generated ids that the matcher has taken */
};

struct grammars {
    struct grammar_compiler *compiler;
    uint32_t vocab_size;
    _Atomic uint64_t *progress;
    struct standing *standings; /* states by slot, [n_standings] */
    uint32_t n_standings;
};

struct grammars *grammars_new(struct grammar_compiler *compiler, uint32_t vocab_size,
                              _Atomic uint64_t *progress)
{
    struct grammars *g = mem_zalloc(sizeof *g);
    g->compiler = compiler;
    g->vocab_size = vocab_size;
    g->progress = progress;
    return g;
}

void grammars_free(struct grammars *g)
{
    if (!g)
        return;
    grammars_leave_all(g);
    mem_free(g->standings);
    mem_free(g);
}

void grammars_prepare(struct grammars *g)
{
    grammar_compiler_start(g->compiler);
}

/* ---- matchers ---- */

static void leave(struct grammars *g, uint32_t slot)
{
    if (slot >= g->n_standings)
        return;
    text_matcher_free(g->standings[slot].matcher);
    g->standings[slot] = (struct standing){0};
}

void grammars_leave_all(struct grammars *g)
{
    for (uint32_t i = 0; i < g->n_standings; i++)
        leave(g, i);
}

void grammars_leave(struct grammars *g, const struct msg_plan *p)
{
    if (p->full)
        grammars_leave_all(g);
    for (uint32_t i = 0; i < p->finished.n && g->n_standings > 0; i++)
        leave(g, p->finished.ptr[i]);
}

static struct standing *standing_of(struct grammars *g, uint32_t slot)
{
    if (slot >= g->n_standings) {
        uint32_t n = g->n_standings ? g->n_standings : 64;
        while (n <= slot)
            n *= 2; /* n is bounded by SEQUENCES_MAX_SLOTS */
        struct standing *fresh = mem_array(n, sizeof *fresh);
        memset(fresh, 0, n * sizeof *fresh);
        if (g->n_standings > 0)
            memcpy(fresh, g->standings, g->n_standings * sizeof *fresh);
        mem_free(g->standings);
        g->standings = fresh;
        g->n_standings = n;
    }
    return &g->standings[slot];
}

void grammars_enter(struct grammars *g, const struct sequence *q)
{
    if (q->sampling.grammar_kind == GRAMMAR_NONE)
        return;
    struct standing *s = standing_of(g, q->slot);
    if (s->serial == q->serial)
        return;
    leave(g, q->slot);
    s->serial = q->serial;
    s->matcher = grammar_compiler_matcher(g->compiler, &q->sampling, g->progress);
}

/* Advances the matcher by all generated ids. A matcher that rejects an id is dropped. A replayed
 * sequence has many ids at once, which takes seconds with a large vocabulary, so each id counts
 * as progress. Returns the cost, which is charged to the sequence with its mask. */
static uint64_t catch_up(struct standing *s, const struct sequence *q, _Atomic uint64_t *progress)
{
    char why[TEXT_ERR_MAX] = "";
    uint64_t before = s->matcher ? text_matcher_cost(s->matcher) : 0, n = 0;
    while (s->matcher && s->n_taken < q->n_ids - q->n_prompt) {
        uint32_t id = q->ids[q->n_prompt + s->n_taken++];
        atomic_fetch_add_explicit(progress, 1, memory_order_relaxed);
        n += ID_UNITS;
        if (text_matcher_accept(s->matcher, id, why) == TEXT_OK)
            continue;
        log_warn("grammar_left", "slot=%u position=%u reason=%s", q->slot,
                 q->n_prompt + s->n_taken - 1, log_quote(why));
        text_matcher_free(s->matcher);
        s->matcher = NULL;
    }
    return n + (s->matcher ? text_matcher_cost(s->matcher) - before : 0);
}

/* ---- masks ---- */

static uint32_t to_units(uint64_t cost)
{
    return cost < UINT32_MAX ? (uint32_t)cost : UINT32_MAX;
}

static void allow_end(const struct sequence *q, uint32_t vocab_size, uint32_t *words)
{
    memset(words, 0, (vocab_size + 31) / 32 * sizeof *words);
    for (uint32_t i = 0; i < q->sampling.eos_ids.n; i++) {
        uint32_t id = q->sampling.eos_ids.ptr[i];
        if (id < vocab_size)
            words[id / 32] |= 1u << (id % 32);
    }
}

static enum grammar_end mask_of(struct text_matcher *m, const struct sequence *q,
                                uint32_t vocab_size, uint32_t *words, uint32_t *units)
{
    char why[TEXT_ERR_MAX] = "";
    uint64_t before = text_matcher_cost(m);
    int s = text_matcher_mask(m, words, (vocab_size + 31) / 32, why);
    *units = to_units(text_matcher_cost(m) - before);
    if (s == TEXT_OK)
        return GRAMMAR_GOES_ON;
    log_warn("grammar_mask", "slot=%u position=%u reason=%s", q->slot, q->n_ids, log_quote(why));
    return s == TEXT_LIMIT ? GRAMMAR_COSTS_TOO_MUCH : GRAMMAR_DEAD_END;
}

/* Returns a copy of the matcher that has taken n draft tokens. Returns NULL when the grammar
 * rejects one of them. */
static struct text_matcher *look_ahead(const struct text_matcher *m, const struct sequence *q,
                                       uint32_t n)
{
    char why[TEXT_ERR_MAX] = "";
    struct text_matcher *ahead = text_matcher_copy(m);
    for (uint32_t i = 0; ahead && i < n; i++)
        if (text_matcher_accept(ahead, q->ids[q->n_ids + i], why) != TEXT_OK) {
            text_matcher_free(ahead);
            return NULL;
        }
    return ahead;
}

static uint32_t kib_of(const struct text_matcher *m)
{
    uint64_t kib = m ? (text_matcher_bytes(m) + 1023) / 1024 : 0;
    return kib < UINT32_MAX ? (uint32_t)kib : UINT32_MAX;
}

void grammars_mask(struct grammars *g, const struct sequence *q, struct grammar_places p)
{
    char why[TEXT_ERR_MAX] = "";
    uint32_t n_words = (g->vocab_size + 31) / 32;
    struct standing *s = &g->standings[q->slot];
    uint64_t caught_up = catch_up(s, q, g->progress);
    struct text_matcher *ahead = NULL, *m = s->matcher;
    for (uint32_t i = 0; i < p.n; i++) {
        uint32_t *words = p.words + (size_t)i * n_words;
        /* The mask after the sequence's own ids comes from its own matcher, so that the mask's
         * cost is counted in that matcher. */
        if (m && m == s->matcher && p.first + i > 0)
            m = ahead = look_ahead(s->matcher, q, p.first);
        if (i > 0 && m &&
            text_matcher_accept(m, q->ids[q->n_ids + p.first + i - 1], why) != TEXT_OK)
            m = NULL;
        p.has[i] = m || !s->matcher;
        p.units[i] = 0;
        p.ends[i] = m            ? mask_of(m, q, g->vocab_size, words, &p.units[i])
                    : s->matcher ? GRAMMAR_GOES_ON
                                 : GRAMMAR_DEAD_END;
        if (!s->matcher)
            allow_end(q, g->vocab_size, words);
    }
    text_matcher_free(ahead);
    p.units[0] = to_units(p.units[0] + caught_up);
    for (uint32_t i = 0; p.kib && i < p.n; i++)
        p.kib[i] = kib_of(s->matcher);
}
