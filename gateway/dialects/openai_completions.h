#pragma once
/* Reads the `prompt` of /v1/completions: a string, a list of strings, token ids, or a list of
 * lists of token ids. The functions are pure, and usable on any thread. */
#include "gateway/prepare/prepared.h"

#define COMPLETIONS_MAX_PROMPTS 1024u

/* Copies the prompts' texts without tokenizing them. Returns false with the reason in `e`. `out`
 * may be partly filled then, and the caller frees it. */
bool openai_completions_prompts(const struct params *p, uint32_t vocab_size,
                                struct prompt_list *out, struct api_error *e);
/* Reads prompts from the value of any field, such as the `prompt` of /v1/completions. */
bool openai_prompts_read(const json_t *v, const char *field, uint32_t vocab_size,
                         struct prompt_list *out, struct api_error *e);
/* Reads one list of ids, which must all be within the vocabulary. `field` is a name for the
 * error text. */
bool openai_ids_read(const json_t *list, const char *field, uint32_t vocab, struct prompt *out,
                     struct api_error *e);
/* Reads a body; this is the dialect's `read` function. */
bool openai_completions_read(const struct prepare_model *m, json_t *owned_body,
                             struct prepared *out);
