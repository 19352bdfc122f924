#include "gateway/grammar_check.h"

#include <pthread.h>
#include <xxhash.h>

#include "common/base/mem.h"

enum { MAX_KNOWN = 256 };

struct grammar_check {
    const struct text_tokenizer *tokenizer;
    pthread_mutex_t lock; /* of all below; nothing is compiled under it, but the vocabulary made */
    struct text_vocabulary *vocabulary; /* NULL: not yet */
    XXH128_hash_t known[MAX_KNOWN];
    uint32_t n_known, i_next;
};

struct grammar_check *grammar_check_new(const struct text_tokenizer *t)
{
    struct grammar_check *c = mem_zalloc(sizeof *c);
    c->tokenizer = t;
    pthread_mutex_init(&c->lock, NULL);
    return c;
}

void grammar_check_free(struct grammar_check *c)
{
    if (!c)
        return;
    text_vocabulary_free(c->vocabulary);
    pthread_mutex_destroy(&c->lock);
    mem_free(c);
}

static bool is_known(const struct grammar_check *c, XXH128_hash_t hash)
{
    for (uint32_t i = 0; i < c->n_known; i++)
        if (XXH128_isEqual(c->known[i], hash))
            return true;
    return false;
}

/* NULL: why says so. */
static const struct text_vocabulary *find(struct grammar_check *c, XXH128_hash_t hash, bool *known,
                                          char why[TEXT_ERR_MAX])
{
    pthread_mutex_lock(&c->lock);
    *known = is_known(c, hash);
    if (!c->vocabulary && text_vocabulary_new(c->tokenizer, &c->vocabulary, why) != TEXT_OK)
        c->vocabulary = NULL;
    const struct text_vocabulary *v = c->vocabulary;
    pthread_mutex_unlock(&c->lock);
    return v;
}

static void remember(struct grammar_check *c, XXH128_hash_t hash)
{
    pthread_mutex_lock(&c->lock);
    c->known[c->i_next] = hash;
    c->i_next = (c->i_next + 1) % MAX_KNOWN;
    if (c->n_known < MAX_KNOWN)
        c->n_known++;
    pthread_mutex_unlock(&c->lock);
}

/* 0: it compiles; else the HTTP status of the refusal, and why. */
static int compile(struct grammar_check *c, enum grammar_kind kind, struct str source,
                   char why[TEXT_ERR_MAX])
{
    bool known = false;
    XXH128_hash_t hash = XXH3_128bits_withSeed(source.ptr, source.len, (XXH64_hash_t)kind);
    const struct text_vocabulary *v = find(c, hash, &known, why);
    if (known)
        return 0;
    if (!v)
        return 500;
    struct text_grammar *g = NULL;
    int s = text_grammar_compile(v, (enum text_grammar_kind)kind, source.ptr, source.len, &g, why);
    text_grammar_free(g);
    if (s != TEXT_OK)
        return s == TEXT_INTERNAL ? 500 : 400;
    remember(c, hash);
    return 0;
}

bool grammar_compiles(struct grammar_check *c, enum grammar_kind kind, struct str source,
                      char why[TEXT_ERR_MAX])
{
    return compile(c, kind, source, why) == 0;
}

bool grammar_check(struct grammar_check *c, enum grammar_kind kind, struct str source,
                   const char *field, struct api_error *e)
{
    char why[TEXT_ERR_MAX] = "";
    const int status = compile(c, kind, source, why);
    return status == 0 ||
           api_error_set(e, status, field, "%s is no grammar that an answer can follow: %s", field,
                         why);
}
