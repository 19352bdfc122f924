#include "worker/grammars.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "text/text.h"

enum { MAX_KEPT = 32, NAP_NS = 2000000, NICENESS = 10 };

_Static_assert((int)TEXT_GRAMMAR_JSON_SCHEMA == (int)GRAMMAR_JSON_SCHEMA &&
                   (int)TEXT_GRAMMAR_REGEX == (int)GRAMMAR_REGEX &&
                   (int)TEXT_GRAMMAR_LARK == (int)GRAMMAR_LARK &&
                   (int)TEXT_GRAMMAR_STRUCTURAL_TAG == (int)GRAMMAR_STRUCTURAL_TAG &&
                   (int)TEXT_GRAMMAR_AFTER_REASONING == (int)GRAMMAR_AFTER_REASONING,
               "kinds go to text/ as they are");

struct kept {
    enum grammar_kind kind;
    struct str source;            /* owned */
    struct text_grammar *grammar; /* NULL: it does not compile */
    uint64_t used;
};

/* Where the sequence of a slot stands. */
struct standing {
    uint64_t serial;              /* of its admission; 0: none */
    struct text_matcher *matcher; /* NULL: there is none to be had */
    uint32_t n_taken;             /* generated ids it has seen */
};

struct grammars {
    const char *tokenizer_path, *cache_dir;
    uint32_t vocab_size;
    _Atomic uint64_t *progress;
    pthread_t thread; /* which makes the vocabulary */
    bool begun, joined;
    _Atomic bool made;                  /* by its thread; then: */
    struct text_vocabulary *vocabulary; /* NULL: it cannot be made, as why says */
    char why[TEXT_ERR_MAX];
    struct kept kept[MAX_KEPT];
    uint32_t n_kept;
    uint64_t n_used;
    struct standing *standings; /* [n_standings] by slot */
    uint32_t n_standings;
};

struct grammars *grammars_new(const char *tokenizer_path, const char *cache_dir,
                              uint32_t vocab_size, _Atomic uint64_t *progress)
{
    struct grammars *g = mem_zalloc(sizeof *g);
    g->tokenizer_path = tokenizer_path;
    g->cache_dir = cache_dir;
    g->vocab_size = vocab_size;
    g->progress = progress;
    return g;
}

static void kept_fini(struct kept *k)
{
    text_grammar_free(k->grammar);
    mem_free((void *)k->source.ptr);
    *k = (struct kept){0};
}

void grammars_free(struct grammars *g)
{
    if (!g)
        return;
    grammars_leave_all(g);
    if (g->begun && !g->joined)
        pthread_join(g->thread, NULL);
    for (uint32_t i = 0; i < g->n_kept; i++)
        kept_fini(&g->kept[i]);
    text_vocabulary_free(g->vocabulary);
    mem_free(g->standings);
    mem_free(g);
}

/* ---- compiled grammars ---- */

static void *make_vocabulary(void *ctx)
{
    struct grammars *g = ctx;
    struct text_tokenizer *t = NULL;
    uint64_t begin_ns = clock_mono_ns();
    (void)setpriority(PRIO_PROCESS, (id_t)gettid(), NICENESS); /* of this thread: Linux */
    int s = text_tokenizer_open(g->tokenizer_path, g->cache_dir, &t, g->why);
    if (s == TEXT_OK)
        s = text_vocabulary_new(t, &g->vocabulary, g->why);
    if (s == TEXT_OK)
        log_info("grammar_vocabulary", "path=%s seconds=%.2f", log_quote(g->tokenizer_path),
                 (double)(clock_mono_ns() - begin_ns) / (double)NS_PER_S);
    if (t)
        text_tokenizer_free(t);
    atomic_store(&g->made, true);
    return NULL;
}

void grammars_prepare(struct grammars *g)
{
    if (g->begun)
        return;
    g->begun = true;
    if (pthread_create(&g->thread, NULL, make_vocabulary, g) == 0)
        return;
    g->joined = true;
    make_vocabulary(g);
}

static const struct text_vocabulary *vocabulary(struct grammars *g)
{
    grammars_prepare(g);
    while (!atomic_load(&g->made)) {
        (void)nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
        atomic_fetch_add(g->progress, 1);
    }
    if (!g->joined)
        pthread_join(g->thread, NULL);
    g->joined = true;
    if (!g->vocabulary)
        log_error("grammar_tokenizer", "path=%s reason=%s", log_quote(g->tokenizer_path),
                  log_quote(g->why));
    return g->vocabulary;
}

/* The place of the one that was used least lately. */
static struct kept *make_room(struct grammars *g)
{
    if (g->n_kept < MAX_KEPT)
        return &g->kept[g->n_kept++];
    struct kept *oldest = &g->kept[0];
    for (uint32_t i = 1; i < g->n_kept; i++)
        if (g->kept[i].used < oldest->used)
            oldest = &g->kept[i];
    kept_fini(oldest);
    return oldest;
}

/* NULL: it does not compile. */
static const struct text_grammar *compiled(struct grammars *g, const struct sampling_params *p)
{
    char why[TEXT_ERR_MAX] = "";
    for (uint32_t i = 0; i < g->n_kept; i++) {
        struct kept *k = &g->kept[i];
        if (k->kind != p->grammar_kind || k->source.len != p->grammar.len ||
            memcmp(k->source.ptr, p->grammar.ptr, p->grammar.len) != 0)
            continue;
        k->used = ++g->n_used;
        return k->grammar;
    }
    const struct text_vocabulary *v = vocabulary(g);
    if (!v)
        return NULL;
    struct kept *k = make_room(g);
    *k = (struct kept){.kind = p->grammar_kind,
                       .source = {mem_strndup(p->grammar.ptr, p->grammar.len), p->grammar.len},
                       .used = ++g->n_used};
    int s = text_grammar_compile(v, (enum text_grammar_kind)p->grammar_kind, p->grammar.ptr,
                                 p->grammar.len, &k->grammar, why);
    if (s != TEXT_OK)
        log_error("grammar_not_compiled", "kind=%d bytes=%zu reason=%s", p->grammar_kind,
                  p->grammar.len, log_quote(why));
    return k->grammar;
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
            n *= 2; /* slots are bounded: SEQUENCES_MAX_SLOTS */
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
    char why[TEXT_ERR_MAX] = "";
    if (q->sampling.grammar_kind == GRAMMAR_NONE)
        return;
    struct standing *s = standing_of(g, q->slot);
    if (s->serial == q->serial)
        return;
    leave(g, q->slot);
    s->serial = q->serial;
    const struct text_grammar *grammar = compiled(g, &q->sampling);
    if (grammar && text_matcher_new(grammar, q->sampling.eos_ids.ptr, q->sampling.eos_ids.n,
                                    &s->matcher, why) != TEXT_OK)
        log_error("grammar_matcher", "slot=%u reason=%s", q->slot, log_quote(why));
}

/* Its matcher has seen all generated ids, or is gone: they are not the grammar's. */
static void catch_up(struct standing *s, const struct sequence *q)
{
    char why[TEXT_ERR_MAX] = "";
    while (s->matcher && s->n_taken < q->n_ids - q->n_prompt) {
        uint32_t id = q->ids[q->n_prompt + s->n_taken++];
        if (text_matcher_accept(s->matcher, id, why) == TEXT_OK)
            continue;
        log_warn("grammar_left", "slot=%u position=%u reason=%s", q->slot,
                 q->n_prompt + s->n_taken - 1, log_quote(why));
        text_matcher_free(s->matcher);
        s->matcher = NULL;
    }
}

/* ---- masks ---- */

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
                                uint32_t vocab_size, uint32_t *words)
{
    char why[TEXT_ERR_MAX] = "";
    int s = text_matcher_mask(m, words, (vocab_size + 31) / 32, why);
    if (s == TEXT_OK)
        return GRAMMAR_GOES_ON;
    log_warn("grammar_mask", "slot=%u position=%u reason=%s", q->slot, q->n_ids, log_quote(why));
    return s == TEXT_LIMIT ? GRAMMAR_COSTS_TOO_MUCH : GRAMMAR_DEAD_END;
}

/* A copy that has taken n guesses; NULL: the grammar refuses one of them. */
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

void grammars_mask(struct grammars *g, const struct sequence *q, struct grammar_places p)
{
    char why[TEXT_ERR_MAX] = "";
    uint32_t n_words = (g->vocab_size + 31) / 32;
    struct standing *s = &g->standings[q->slot];
    catch_up(s, q);
    struct text_matcher *ahead = NULL, *m = s->matcher;
    for (uint32_t i = 0; i < p.n; i++) {
        uint32_t *words = p.words + (size_t)i * n_words;
        /* The mask behind its own ids is its matcher's, which it is charged for. */
        if (m && m == s->matcher && p.first + i > 0)
            m = ahead = look_ahead(s->matcher, q, p.first);
        if (i > 0 && m &&
            text_matcher_accept(m, q->ids[q->n_ids + p.first + i - 1], why) != TEXT_OK)
            m = NULL;
        p.has[i] = m || !s->matcher;
        p.ends[i] = m            ? mask_of(m, q, g->vocab_size, words)
                    : s->matcher ? GRAMMAR_GOES_ON
                                 : GRAMMAR_DEAD_END;
        if (!s->matcher)
            allow_end(q, g->vocab_size, words);
    }
    text_matcher_free(ahead);
}
