#pragma once
/* The `prompt` of /v1/completions: a string, a list of strings, token ids, or a list of lists of
 * token ids. Pure; any thread. */
#include "gateway/prepare/prepared.h"

#define COMPLETIONS_MAX_PROMPTS 1024u

/* Texts are copied and not yet tokenized. False: e says why; out may be half filled and is the
 * caller's to drop. */
bool openai_completions_prompts(const struct params *p, uint32_t vocab_size,
                                struct prompt_list *out, struct api_error *e);
/* The same of any field. */
bool openai_prompts_read(const json_t *v, const char *field, uint32_t vocab_size,
                         struct prompt_list *out, struct api_error *e);
/* One list of ids, each in the vocabulary. field: for the error's text. */
bool openai_ids_read(const json_t *list, const char *field, uint32_t vocab, struct prompt *out,
                     struct api_error *e);
/* The dialect's read. */
bool openai_completions_read(const struct prepare_model *m, json_t *owned_body,
                             struct prepared *out);
