/* Replaces the part of text/ that the worker calls, for builds without Rust (alone.cmake).
 * Benchmarks and kernel tests use no grammar. A program that uses one gets an error with the
 * reason. */
#include "text/text.h"

#include <stdio.h>

static int none(char err[TEXT_ERR_MAX])
{
    snprintf(err, TEXT_ERR_MAX, "this program was built without text/");
    return TEXT_UNSUPPORTED;
}

int text_tokenizer_open(const char *path, const char *cache_dir, struct text_tokenizer **out,
                        char err[TEXT_ERR_MAX])
{
    return none(err);
}

void text_tokenizer_free(struct text_tokenizer *t)
{
}

uint32_t text_vocab_size(const struct text_tokenizer *t)
{
    return 0;
}

const uint8_t *text_token_bytes(const struct text_tokenizer *t, uint32_t id, size_t *len)
{
    return NULL;
}

bool text_token_is_special(const struct text_tokenizer *t, uint32_t id)
{
    return false;
}

int text_vocabulary_new(const struct text_tokenizer *t, struct text_vocabulary **out,
                        char err[TEXT_ERR_MAX])
{
    return none(err);
}

void text_vocabulary_free(struct text_vocabulary *v)
{
}

int text_grammar_compile(const struct text_vocabulary *v, enum text_grammar_kind kind,
                         const char *source, size_t len, struct text_grammar **out,
                         char err[TEXT_ERR_MAX])
{
    return none(err);
}

void text_grammar_free(struct text_grammar *g)
{
}

void text_grammar_cost(const struct text_grammar *g, struct text_compile_cost *out)
{
    *out = (struct text_compile_cost){0};
}

int text_matcher_new(const struct text_grammar *g, const uint32_t *eos_ids, size_t n_eos,
                     struct text_matcher **out, char err[TEXT_ERR_MAX])
{
    return none(err);
}

struct text_matcher *text_matcher_copy(const struct text_matcher *m)
{
    return NULL;
}

void text_matcher_free(struct text_matcher *m)
{
}

int text_matcher_mask(struct text_matcher *m, uint32_t *words, size_t n_words,
                      char err[TEXT_ERR_MAX])
{
    return none(err);
}

int text_matcher_accept(struct text_matcher *m, uint32_t id, char err[TEXT_ERR_MAX])
{
    return none(err);
}

uint64_t text_matcher_cost(const struct text_matcher *m)
{
    return 0;
}

uint64_t text_matcher_bytes(const struct text_matcher *m)
{
    return 0;
}
