#pragma once
/* Makes the prompts of a benchmark from random text or from a file. The file contains ShareGPT's
 * JSON array, the lines of a poem (sonnet), or JSON lines.
 * A file may contain any bytes. An invalid line is an error that names the line. The seed alone
 * determines every random choice. */
#include "cli/bench/tokens.h"

enum bench_dataset_kind {
    /* the kind follows from the file's content; without a file, prompts are random */
    BENCH_DATASET_AUTO,
    BENCH_DATASET_RANDOM,
    BENCH_DATASET_SHAREGPT,
    BENCH_DATASET_SONNET,
    BENCH_DATASET_CUSTOM,
    BENCH_DATASET_COUNT
};
#define BENCH_DATASET_NAMES "auto|random|sharegpt|sonnet|custom"

struct bench_dataset_options {
    int kind; /* kind of the data (enum bench_dataset_kind) */
    const char *path;
    int64_t n_prompts, seed;
    /* lengths in tokens, for every kind; -1 = the kind's own option sets the length */
    int64_t input_len, output_len;
    int64_t random_input_len, random_output_len, random_prefix_len;
    double random_range_ratio;
    /* output length in tokens; -1 = length of the answer in the file */
    int64_t sharegpt_output_len;
    int64_t sonnet_input_len, sonnet_output_len, sonnet_prefix_len;
    int64_t custom_output_len;
    bool disable_shuffle, no_oversample;
    bool quiet; /* no progress bar is drawn while prompts are made */
};

struct bench_prompt {
    char *owned_text;
    const char *model; /* model that gets the prompt, borrowed; NULL = the target's model */
    /* n_output_tokens: number of tokens that the request asks for */
    uint32_t n_prompt_tokens, n_output_tokens;
};

struct bench_prompts {
    struct bench_prompt *items;
    uint32_t n;
};

/* Finds the kind of a file by its name (.jsonl) and its first byte. An error text names the
 * accepted forms. */
MUST_USE enum status bench_dataset_find_kind(const char *path, struct str text, int *kind,
                                             struct error *err);
/* Checks that the file exists and has a known form. It runs before the benchmark waits for a
 * server or starts one. */
MUST_USE enum status bench_dataset_check(const struct bench_dataset_options *o, struct error *err);
/* Makes n_prompts prompts. A shorter file is repeated unless no_oversample is set. */
MUST_USE enum status bench_dataset_load(const struct bench_dataset_options *o,
                                        const struct bench_tokens *t, struct bench_prompts *out,
                                        struct error *err);
void bench_prompts_fini(struct bench_prompts *p); /* Frees the prompts; accepts a zeroed struct. */

/* ---- for tests ---- */
/* Finds the next object of a JSON array. At the first call, *at is the offset of the array's
 * first byte. Each call moves *at behind the object that it found. Returns false at the end. An
 * element that is not an object ends the walk and sets *wrong. */
bool bench_json_next(struct str text, size_t *at, struct str *object, bool *wrong);
