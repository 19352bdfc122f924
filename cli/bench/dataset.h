#pragma once
/* The prompts of a benchmark: drawn at random, or of a file: ShareGPT's JSON array, a
 * poem's lines (sonnet), JSON lines of one's own. Files are anybody's: a wrong line is an error
 * that names it. What is drawn is drawn by the seed alone. */
#include "cli/bench/tokens.h"

enum bench_dataset_kind {
    BENCH_DATASET_AUTO, /* by the file; without one random */
    BENCH_DATASET_RANDOM,
    BENCH_DATASET_SHAREGPT,
    BENCH_DATASET_SONNET,
    BENCH_DATASET_CUSTOM,
    BENCH_DATASET_COUNT
};
#define BENCH_DATASET_NAMES "auto|random|sharegpt|sonnet|custom"

struct bench_dataset_options {
    int kind; /* enum bench_dataset_kind */
    const char *path;
    int64_t n_prompts, seed;
    int64_t input_len, output_len; /* of all kinds; -1: each kind's own */
    int64_t random_input_len, random_output_len, random_prefix_len;
    double random_range_ratio;
    int64_t sharegpt_output_len; /* -1: of the answer in the file */
    int64_t sonnet_input_len, sonnet_output_len, sonnet_prefix_len;
    int64_t custom_output_len;
    bool disable_shuffle, no_oversample;
    bool quiet; /* no bar while they are made */
};

struct bench_prompt {
    char *owned_text;
    const char *model; /* borrowed: whom it is for; NULL: the target's model */
    uint32_t n_prompt_tokens, n_output_tokens; /* n_output_tokens: what is asked for */
};

struct bench_prompts {
    struct bench_prompt *items;
    uint32_t n;
};

/* By its name (.jsonl) and by its first byte; the text of an error says what was looked for. */
MUST_USE enum status bench_dataset_find_kind(const char *path, struct str text, int *kind,
                                             struct error *err);
/* Is the file there, and of a kind? Before a server is waited for, or started. */
MUST_USE enum status bench_dataset_check(const struct bench_dataset_options *o, struct error *err);
/* n_prompts of them, those of a short file again and again unless no_oversample is set. */
MUST_USE enum status bench_dataset_load(const struct bench_dataset_options *o,
                                        const struct bench_tokens *t, struct bench_prompts *out,
                                        struct error *err);
void bench_prompts_fini(struct bench_prompts *p); /* zeroed is fine */

/* ---- for tests ---- */
/* The next object of a JSON array whose first byte is at *at, or of what is left of it; false at
 * its end. What is not an object ends it with *wrong set. */
bool bench_json_next(struct str text, size_t *at, struct str *object, bool *wrong);
