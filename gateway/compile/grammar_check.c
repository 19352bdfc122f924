#include "gateway/compile/grammar_check.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "common/base/mem.h"
#include "common/base/random.h"

enum { MAX_KNOWN = 512 };

struct verdict {
    uint64_t used; /* value of `n_used` when this verdict was last used */
    int status;    /* HTTP status of the refusal; 0 = the grammar compiles */
    char *why;     /* reason of the refusal, owned; NULL = the grammar compiles */
};

struct grammar_check {
    const struct text_tokenizer *tokenizer;
    struct compilers *compilers;
    uint64_t seed; /* secret seed of the hashes, so that no client can construct collisions */
    /* guards all fields below; held while the vocabulary is built, not while a grammar is
     * compiled */
    pthread_mutex_t lock;
    /* vocabulary of the tokenizer; NULL = not built yet, or not needed here */
    struct text_vocabulary *vocabulary;
    XXH128_hash_t known[MAX_KNOWN];
    struct verdict verdicts[MAX_KNOWN];
    uint32_t n_known;
    uint64_t n_used;
};

struct grammar_check *grammar_check_new(const struct text_tokenizer *t, struct compilers *compilers)
{
    struct grammar_check *c = mem_zalloc(sizeof *c);
    c->tokenizer = t;
    c->compilers = compilers;
    c->seed = random_secure_u64();
    pthread_mutex_init(&c->lock, NULL);
    return c;
}

void grammar_check_free(struct grammar_check *c)
{
    if (!c)
        return;
    for (uint32_t i = 0; i < c->n_known; i++)
        mem_free(c->verdicts[i].why);
    text_vocabulary_free(c->vocabulary);
    pthread_mutex_destroy(&c->lock);
    mem_free(c);
}

/* Returns the stored verdict on a source, or NULL when it is unknown. The caller holds the lock. */
static struct verdict *find(struct grammar_check *c, XXH128_hash_t hash)
{
    for (uint32_t i = 0; i < c->n_known; i++)
        if (XXH128_isEqual(c->known[i], hash))
            return &c->verdicts[i];
    return NULL;
}

/* Looks for the stored verdict on a source. Returns true and sets the outputs when the source is
 * known. */
static bool recall(struct grammar_check *c, XXH128_hash_t hash, int *status, char why[TEXT_ERR_MAX])
{
    pthread_mutex_lock(&c->lock);
    struct verdict *v = find(c, hash);
    if (v) {
        v->used = ++c->n_used;
        *status = v->status;
        snprintf(why, TEXT_ERR_MAX, "%s", v->why ? v->why : "");
    }
    pthread_mutex_unlock(&c->lock);
    return v != NULL;
}

/* Returns a free entry, or the least recently used one. The caller holds the lock. */
static uint32_t make_room(struct grammar_check *c)
{
    uint32_t oldest = 0;
    if (c->n_known < MAX_KNOWN)
        return c->n_known++;
    for (uint32_t i = 1; i < MAX_KNOWN; i++)
        if (c->verdicts[i].used < c->verdicts[oldest].used)
            oldest = i;
    mem_free(c->verdicts[oldest].why);
    return oldest;
}

static void remember(struct grammar_check *c, XXH128_hash_t hash, int status, const char *why)
{
    pthread_mutex_lock(&c->lock);
    if (!find(c, hash)) { /* two threads may have compiled this source at the same time */
        const uint32_t i = make_room(c);
        c->known[i] = hash;
        c->verdicts[i] = (struct verdict){
            .used = ++c->n_used, .status = status, .why = status ? mem_strdup(why) : NULL};
    }
    pthread_mutex_unlock(&c->lock);
}

static const struct text_vocabulary *vocabulary(struct grammar_check *c, char why[TEXT_ERR_MAX])
{
    pthread_mutex_lock(&c->lock);
    if (!c->vocabulary && text_vocabulary_new(c->tokenizer, &c->vocabulary, why) != TEXT_OK)
        c->vocabulary = NULL;
    const struct text_vocabulary *v = c->vocabulary;
    pthread_mutex_unlock(&c->lock);
    return v;
}

static int compile_here(struct grammar_check *c, enum grammar_kind kind, struct str source,
                        char why[TEXT_ERR_MAX])
{
    const struct text_vocabulary *v = vocabulary(c, why);
    struct text_grammar *g = NULL;
    if (!v)
        return TEXT_INTERNAL;
    const int s =
        text_grammar_compile(v, (enum text_grammar_kind)kind, source.ptr, source.len, &g, why);
    text_grammar_free(g);
    return s;
}

/* Compiles the grammar in a separate process. Returns an `enum text_status`, or -1 when there is
 * no verdict. */
static int compile_elsewhere(struct grammar_check *c, struct grammar_asker *a,
                             enum grammar_kind kind, struct str source, char why[TEXT_ERR_MAX])
{
    const struct compile_frame job = {
        .what = COMPILE_GRAMMAR, .code = (int32_t)kind, .text = source};
    struct compile_result result;
    const struct compile_client client = {a->tenant, a->dropped};
    compilers_run(c->compilers, &job, &client, &result);
    const bool done = result.outcome == COMPILE_DONE;
    snprintf(why, TEXT_ERR_MAX, "%s",
             done ? strbuf_str(&result.text).ptr : compile_outcome_words(result.outcome));
    strbuf_fini(&result.text);
    a->met_limit = compile_met_limit(result.outcome);
    return done ? result.status : -1;
}

static void say_limit(char why[TEXT_ERR_MAX])
{
    char words[TEXT_ERR_MAX];
    snprintf(words, sizeof words, "%s", why);
    snprintf(why, TEXT_ERR_MAX, "it is too expensive to compile: %.*s", TEXT_ERR_MAX - 64, words);
}

int grammar_compiles(struct grammar_check *c, struct grammar_asker *a, enum grammar_kind kind,
                     struct str source, char why[TEXT_ERR_MAX])
{
    int status = 0;
    const XXH128_hash_t hash =
        XXH3_128bits_withSeed(source.ptr, source.len, c->seed + (XXH64_hash_t)kind);
    why[0] = '\0';
    if (recall(c, hash, &status, why))
        return status;
    if (a->place != PREPARE_COMPILING)
        return PREPARE_WANTS_COMPILING;
    if (a->n_compiles_left == 0) {
        snprintf(why, TEXT_ERR_MAX,
                 "the server has already compiled as many grammars as one request may have");
        return 503;
    }
    a->n_compiles_left--;
    const int s = c->compilers ? compile_elsewhere(c, a, kind, source, why)
                               : compile_here(c, kind, source, why);
    if (s < 0)
        return 503;
    if (s == TEXT_INTERNAL)
        return 500;
    if (s == TEXT_LIMIT)
        say_limit(why);
    status = s == TEXT_OK ? 0 : 400;
    remember(c, hash, status, why);
    return status;
}

bool grammar_check(struct grammar_check *c, struct grammar_asker *a, enum grammar_kind kind,
                   struct str source, const char *field, struct api_error *e)
{
    char why[TEXT_ERR_MAX] = "";
    const int status = grammar_compiles(c, a, kind, source, why);
    if (status == 0)
        return true;
    if (a->met_limit)
        e->code = API_COMPILE_LIMIT;
    if (status == 503)
        return api_error_set(e, status, field,
                             "%s could not be compiled: %s. Try again later, or simplify it.",
                             field, why);
    return api_error_set(e, status, field, "%s cannot be used as a grammar for the answer: %s",
                         field, why);
}
