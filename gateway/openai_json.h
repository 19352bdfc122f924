#pragma once
/* The JSON of answers: whole replies and stream chunks of both endpoints, usage, log-probabilities,
 * the list of models. Field order and extra fields are vLLM's. Pure: appends to a buffer. */
#include "gateway/generation.h"
#include "gateway/params.h"
#include "gateway/prompt.h"

struct openai_reply { /* what every chunk of one request shares; borrowed */
    const char *id;   /* "cmpl-…", "chatcmpl-…" */
    uint64_t created_s;
    struct str model;
    const struct params *params;
    const struct prompt_list *prompts;
    const struct text_tokenizer *tokenizer;
};

struct openai_usage {
    uint64_t prompt_tokens, completion_tokens, cached_tokens;
};

/* One choice's chunk. usage: NULL, or the numbers so far (continuous_usage_stats). */
void openai_chunk(struct strbuf *out, const struct openai_reply *r, uint32_t i_choice,
                  const struct generation *g, const struct generation_delta *d,
                  const struct openai_usage *usage);
/* Chat: the chunk with the role that comes before a choice's first text. */
void openai_role_chunk(struct strbuf *out, const struct openai_reply *r, uint32_t i_choice);
/* The last chunk, with include_usage: no choices. */
void openai_usage_chunk(struct strbuf *out, const struct openai_reply *r,
                        const struct openai_usage *usage);

/* A whole reply: begin, each choice in order, end. */
void openai_reply_begin(struct strbuf *out, const struct openai_reply *r);
void openai_reply_choice(struct strbuf *out, const struct openai_reply *r, uint32_t i_choice,
                         const struct generation *g, const struct generation_delta *d);
void openai_reply_end(struct strbuf *out, const struct openai_reply *r,
                      const struct openai_usage *usage);

/* An entry of /v1/models. parent: of an adapter, the model's name; else NULL. */
struct openai_model {
    const char *name, *root, *parent;
    uint64_t created_s;
    uint32_t max_model_len;
};
void openai_model(struct strbuf *out, const struct openai_model *m);
