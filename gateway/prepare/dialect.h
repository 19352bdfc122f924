#pragma once
/* A way to ask and a way to be answered: OpenAI's two endpoints, and whatever else speaks to this
 * gateway. A route names its dialect; request/ knows no JSON, a dialect knows no request. Each
 * is one const table of functions. docs/develop/gateway.md says what a new one has to do. */
#include "gateway/answer/answer.h"
#include "gateway/prepare/prepared.h"
#include "gateway/tools/set.h"

/* Which block of a stream is open and how many events there were, for dialects whose events say so.
 * One per request, zeroed before open; only the dialect looks into it. */
struct dialect_state {
    uint32_t n_events, n_blocks;
    bool block_is_open;
    enum answer_part_kind open_block;
    enum tool_form form; /* of a call */
    /* What was said so far, for dialects whose end repeats it. */
    struct strbuf items, text, head, logprobs;
    size_t n_logprobs_given;                /* bytes of logprobs that were said already */
    uint32_t n_counted, n_reasoning_tokens; /* of all ids: looked at, found in the reasoning */
};
void dialect_state_fini(struct dialect_state *s);

struct answer_shape { /* what all that is written of one request shares; borrowed */
    const char *id;   /* prefix and 32 hex digits */
    uint64_t created_s;
    struct str model; /* the name to answer with */
    uint32_t max_model_len;
    const struct params *params;
    const struct prompt_list *prompts;
    const struct text_tokenizer *tokenizer;
    struct str chunk_head; /* of a stream, when the dialect makes one */
};

struct dialect {
    const char *name;         /* in docs, logs and metrics */
    const char *id_prefix;    /* "chatcmpl-" */
    const char *prompt_field; /* what error texts call the prompt */
    enum api_kind kind;       /* its bit in the field table */
    const char *call_prefix;  /* of tool calls' ids; NULL: answers go through no parser */

    /* Body to params, and prompts with text or ids set; the caller tokenizes. Pure; any thread.
     * owned_body moves into out->params, also on failure. False: out->error says why. */
    bool (*read)(const struct prepare_model *m, json_t *owned_body, struct prepared *out);
    /* The status that an error is answered with; NULL: its own. */
    int (*status)(const struct api_error *e);
    bool repeats_text; /* a stream's last delta needs what was given before: generation.said */

    /* Without generation: the answer, as soon as ids and texts of the prompts are known. They may
     * be empty, and longer than the context. NULL: prompts are submitted, and what follows is used.
     */
    void (*answer)(struct strbuf *out, const struct answer_shape *a);

    /* A stream: its content type, and the line that keeps a silent one open (NULL: there is none).
     * All writers append to out, framing included. */
    const char *(*stream_type)(const struct params *p);
    const char *keep_alive;
    /* What all its chunks begin with, made once, into a->chunk_head; NULL: delta writes it. */
    void (*chunk_head)(struct strbuf *out, const struct answer_shape *a);
    /* Before the first delta; NULL: nothing is written. */
    void (*open)(struct strbuf *out, const struct answer_shape *a, struct dialect_state *s);
    void (*delta)(struct strbuf *out, const struct answer_shape *a, struct dialect_state *s,
                  const struct answer_delta *d);
    void (*close)(struct strbuf *out, const struct answer_shape *a, struct dialect_state *s,
                  const struct answer_usage *u);
    /* The answer in one piece: every choice as one delta with first and end set, in order. */
    void (*whole)(struct strbuf *out, const struct answer_shape *a, const struct answer_delta *d,
                  uint32_t n, const struct answer_usage *u);
    /* The end of a stream that fails, where it says more than the error; NULL: error. */
    void (*fail)(struct strbuf *out, const struct answer_shape *a, struct dialect_state *s,
                 const struct api_error *e);
    /* As the body of an answer, or as the end of a stream. */
    void (*error)(struct strbuf *out, const struct api_error *e, bool in_stream);
};
