#pragma once
/* Reads the expected results of a model: expected.json and expected.safetensors, written by
 * scripts/make-goldens and by the generator of the goldens made with transformers. An invalid
 * file ends the program, because the file is part of the tests. */
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct golden_logit {
    uint32_t id;
    double logit;
};
struct golden_prompt {
    const char *name;
    uint32_t *ids, n_ids;
    uint32_t *greedy, n_greedy; /* expected greedy tokens; EOS is an ordinary token */
    double *gaps;             /* differences between the two best logits at each step, [n_greedy] */
    struct golden_logit *top; /* logits of the prompt's last position, best first, [n_top] */
    uint32_t n_top;
    float *last_logits; /* logits of the last position, [vocab_size]; NULL = not given */
    /* log-probabilities at every position, [n_ids][vocab_size]; NULL = not given */
    float *logprobs;
};
struct golden_file {
    json_t *json;
    uint32_t vocab_size;
    struct golden_prompt *prompts;
    uint32_t n_prompts;
    uint32_t *text_ids, n_text_ids; /* text for the perplexity; n_text_ids 0 = no text */
    double perplexity;
};

/* Opens the expected results in a folder. `section` is a section of a file that has several
 * ("gguf_f32"), or NULL. Returns false when there is no such file. */
bool golden_file_open(struct golden_file *f, const char *folder, const char *section);
void golden_file_close(struct golden_file *f);
/* Prints a message to standard error and ends the program with exit status 1. */
_Noreturn void golden_die(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
