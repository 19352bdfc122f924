#pragma once
/* Converts texts to token ids and back, so that prompts get the requested lengths. The
 * conversion uses a tokenizer file, or the server's /tokenize and /detokenize. Without both,
 * each word counts as a token, with a warning. Only one thread calls these functions. */
#include "cli/bench/target.h"
#include "common/base/random.h"
#include "common/base/str.h"

enum bench_tokens_kind { BENCH_TOKENS_FILE, BENCH_TOKENS_SERVER, BENCH_TOKENS_WORDS };

struct bench_ids {
    uint32_t *ids; /* token ids; the owner frees them with `mem_free` */
    size_t n;
};

struct bench_tokens;

/* Opens a tokenizer. `path` is a tokenizer's file or folder, or a GGUF file. With `path` NULL,
 * the server's /tokenize is used. `target` is borrowed. */
MUST_USE enum status bench_tokens_open(struct bench_tokens **out, const char *path,
                                       const struct bench_target *target, struct error *err);
void bench_tokens_close(struct bench_tokens *t); /* Frees the tokenizer; accepts NULL. */
enum bench_tokens_kind bench_tokens_kind(const struct bench_tokens *t);
/* Encodes the text without special tokens. */
MUST_USE enum status bench_tokens_encode(const struct bench_tokens *t, struct str text,
                                         struct bench_ids *out, struct error *err);
MUST_USE enum status bench_tokens_count(const struct bench_tokens *t, struct str text, uint32_t *n,
                                        struct error *err);
/* Makes a text of n tokens from random words. The text's first tokens are those of `prefix`. The
 * ids are decoded and encoded again. When tokens have merged, the function adds or removes
 * words, at most ten times. *n_got is the number of tokens in the final text. */
MUST_USE enum status bench_tokens_draw(const struct bench_tokens *t, struct rng *r,
                                       const struct bench_ids *prefix, uint32_t n,
                                       char **owned_text, uint32_t *n_got, struct error *err);
