#pragma once
/* What a model must say: expected.json and expected.safetensors, as scripts/make-goldens and the
 * generator of the goldens made with transformers write them. A file that is not as it should be
 * ends the program: the tests' data is ours. */
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
    uint32_t *greedy, n_greedy; /* what follows; EOS is a token like any other */
    double *gaps;               /* [n_greedy] the two best logits' distance at each step */
    struct golden_logit *top;   /* [n_top] of the prompt's last position, best first */
    uint32_t n_top;
    float *last_logits; /* [vocab_size]; NULL: not given */
    float *logprobs;    /* [n_ids][vocab_size], at every position; NULL: not given */
};
struct golden_file {
    json_t *json;
    uint32_t vocab_size;
    struct golden_prompt *prompts;
    uint32_t n_prompts;
    uint32_t *text_ids, n_text_ids; /* for the perplexity; n 0: none */
    double perplexity;
};

/* section: of the files that have several ("gguf_f32"), or NULL. False: there is no such file. */
bool golden_file_open(struct golden_file *f, const char *folder, const char *section);
void golden_file_close(struct golden_file *f);
/* Prints to standard error and ends with status 1. */
_Noreturn void golden_die(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
