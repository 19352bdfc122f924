/* Fuzzes grammars. A source behind a byte with its kind is compiled over a vocabulary of bytes;
 * then up to 64 of the tokens that its masks allow are accepted. As in text_model_fuzz.c there
 * must be no panic and no fault, and the input must end. The counted work must also stay within
 * the limits of text/. */
#include "text/text.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { WORDS = 9, N_TOKENS = 64 };

/* The limits are counts and never times: a compile's bytes (heap.rs), and units of masks
 * (mask_budget.rs). The lexer may use 140,000 units for each mask in addition to those that are
 * charged. */
static const uint64_t most_bytes = UINT64_C(3) << 29, most_at_once = UINT64_C(256) << 20,
                      most_units = 11000000 + N_TOKENS * (150000 + 140000);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct text_vocabulary *vocabulary(void)
{
    static struct text_vocabulary *v;
    struct text_tokenizer *t = NULL;
    char err[TEXT_ERR_MAX];
    if (v)
        return v;
    if (text_tokenizer_open("builtin:bytes", NULL, &t, err) != TEXT_OK ||
        text_vocabulary_new(t, &v, err) != TEXT_OK)
        abort();
    text_tokenizer_free(t);
    return v;
}

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

/* Returns whether the error is the crate's text for a caught panic. The word "panic" alone is
 * not enough, because an input may contain it. */
static bool tells_a_panic(const char *err)
{
    return begins(err, "panic: ") || begins(err, "the grammar allows no text: panic: ");
}

static void follow(struct text_matcher *m, uint32_t seed)
{
    uint32_t words[WORDS];
    char err[TEXT_ERR_MAX] = "";
    for (int n = 0; n < N_TOKENS && !text_matcher_is_done(m); n++) {
        if (text_matcher_mask(m, words, WORDS, err) == TEXT_INTERNAL)
            abort();
        uint32_t id = (seed = seed * 1664525u + 1013904223u) >> 23, left = WORDS * 32;
        for (; left > 0 && !(words[id / 32 % WORDS] >> (id % 32) & 1); left--)
            id = (id + 1) % (WORDS * 32);
        id %= WORDS * 32;
        /* the matcher must accept a token that the mask allows */
        if (left == 0 || text_matcher_accept(m, id, err) != TEXT_OK)
            abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char err[TEXT_ERR_MAX] = "";
    struct text_grammar *g = NULL;
    struct text_matcher *m = NULL;
    if (size == 0)
        return 0;
    enum text_grammar_kind kind = (enum text_grammar_kind)(data[0] % 6);
    int rc = text_grammar_compile(vocabulary(), kind, (const char *)data + 1, size - 1, &g, err);
    if (rc == TEXT_INTERNAL || tells_a_panic(err))
        abort();
    if (rc != TEXT_OK)
        return 0;
    if (text_matcher_new(g, NULL, 0, &m, err) != TEXT_OK)
        abort();
    struct text_compile_cost cost;
    text_grammar_cost(g, &cost);
    text_grammar_free(g);
    follow(m, (uint32_t)size);
    if (cost.bytes > most_bytes || cost.peak_bytes > most_at_once ||
        text_matcher_cost(m) > most_units)
        abort();
    text_matcher_free(m);
    return 0;
}
