#pragma once
/* The expected results of a model: expected.json and expected.safetensors, written by
 * scripts/make-goldens and by the generator of the goldens made with transformers. An invalid
 * file ends the program: it is part of the tests. */
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
    double *gaps;               /* [n_greedy] distance of the two best logits at each step */
    struct golden_logit *top;   /* [n_top] logits of the prompt's last position, best first */
    uint32_t n_top;
    float *last_logits; /* [vocab_size]; NULL = not given */
    float *logprobs;    /* [n_ids][vocab_size], at every position; NULL = not given */
};
struct golden_file {
    json_t *json;
    uint32_t vocab_size;
    struct golden_prompt *prompts;
    uint32_t n_prompts;
    uint32_t *text_ids, n_text_ids; /* text for the perplexity; n_text_ids: 0 = none */
    double perplexity;
};

/* section: a section of a file that has several ("gguf_f32"), or NULL. Returns false when there
 * is no such file. */
bool golden_file_open(struct golden_file *f, const char *folder, const char *section);
void golden_file_close(struct golden_file *f);
/* Prints to standard error and ends with exit status 1. */
_Noreturn void golden_die(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
