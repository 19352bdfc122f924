#pragma once
/* Texts to token ids and back, so that prompts have the lengths that are asked for: by a tokenizer
 * file here, by the server's /tokenize and /detokenize, or, of a server that has neither, a token
 * per word, with a warning. One thread. */
#include "cli/bench/target.h"
#include "common/base/random.h"
#include "common/base/str.h"

enum bench_tokens_kind { BENCH_TOKENS_FILE, BENCH_TOKENS_SERVER, BENCH_TOKENS_WORDS };

struct bench_ids {
    uint32_t *ids; /* for mem_free */
    size_t n;
};

struct bench_tokens;

/* path: a tokenizer's file or folder, a GGUF; NULL: the server is asked. target is borrowed. */
MUST_USE enum status bench_tokens_open(struct bench_tokens **out, const char *path,
                                       const struct bench_target *target, struct error *err);
void bench_tokens_close(struct bench_tokens *t); /* NULL is fine */
enum bench_tokens_kind bench_tokens_kind(const struct bench_tokens *t);
/* Special tokens are not added. */
MUST_USE enum status bench_tokens_encode(const struct bench_tokens *t, struct str text,
                                         struct bench_ids *out, struct error *err);
MUST_USE enum status bench_tokens_count(const struct bench_tokens *t, struct str text, uint32_t *n,
                                        struct error *err);
/* A text of random words that has n tokens, the first ones those of prefix: decoded, encoded again,
 * mended where tokens have merged, at most ten times; *n_got is what it has then. */
MUST_USE enum status bench_tokens_draw(const struct bench_tokens *t, struct rng *r,
                                       const struct bench_ids *prefix, uint32_t n,
                                       char **owned_text, uint32_t *n_got, struct error *err);
