#pragma once
/* `dialect` is a form of request and answer, such as that of OpenAI's chat completions. A route
 * names its dialect. request/ contains no JSON, and a dialect does not access the request. Each
 * dialect is a constant table of functions. docs/develop/gateway.md describes the needs of a new
 * dialect. */
#include "gateway/answer/answer.h"
#include "gateway/prepare/prepared.h"
#include "gateway/tools/set.h"

/* `dialect_state` keeps the state of a stream for dialects with numbered or nested events: the
 * open block, the number of events and more. Each request has one, which is zeroed before `open`
 * and used by the dialect only. */
struct dialect_state {
    uint32_t n_events, n_blocks;
    bool block_is_open;
    enum answer_part_kind open_block;
    enum tool_form form; /* form of the tool that the open call calls */
    /* The following buffers hold text written so far, for dialects that repeat it at the end. */
    struct strbuf items, text, head, logprobs;
    size_t n_logprobs_given; /* bytes of `logprobs` that were already written */
    /* ids counted so far, and the reasoning tokens among them */
    uint32_t n_counted, n_reasoning_tokens;
};
void dialect_state_fini(struct dialect_state *s);

struct answer_shape { /* values that all writes of one request share; borrowed */
    const char *id;   /* id of the answer: prefix and 32 hex digits */
    uint64_t created_s;
    struct str model; /* name of the model in the answer */
    uint32_t max_model_len;
    const struct params *params;
    const struct prompt_list *prompts;
    const struct text_tokenizer *tokenizer;
    struct str chunk_head; /* constant beginning of a stream's chunks, if the dialect has one */
};

struct dialect {
    const char *name;         /* name in docs, logs and metrics */
    const char *id_prefix;    /* prefix of ids, such as "chatcmpl-" */
    const char *prompt_field; /* name of the prompt in error texts */
    enum api_kind kind;       /* bit of the dialect in the table of fields */
    const char *call_prefix;  /* prefix of tool call ids; NULL = no parser reads the answers */

    /* Reads a body into params, and prompts with text or ids. The caller tokenizes. The function
     * is pure, and usable on any thread. `owned_body` moves into `out->params`, also on failure.
     * Returns false with the reason in `out->error`. */
    bool (*read)(const struct prepare_model *m, json_t *owned_body, struct prepared *out);
    /* Returns the HTTP status for an error. When `status` is NULL, the error's own status is
     * used. */
    int (*status)(const struct api_error *e);
    bool repeats_text; /* the last delta of a stream needs all earlier text (`generation.said`) */

    /* Writes an answer that needs no generation, once ids and texts of the prompts are known.
     * The prompts may be empty, or longer than the context. When `answer` is NULL, prompts are
     * submitted and the functions below are used. */
    void (*answer)(struct strbuf *out, const struct answer_shape *a);

    /* `stream_type` returns the content type of a stream. The next member is the line that keeps
     * a silent stream open (NULL = none). All writers append to `out`, with framing. */
    const char *(*stream_type)(const struct params *p);
    const char *keep_alive;
    /* Writes the constant beginning of all chunks once, for `a->chunk_head`. When `chunk_head`
     * is NULL, `delta` writes the beginning. */
    void (*chunk_head)(struct strbuf *out, const struct answer_shape *a);
    /* Writes the start of a stream. NULL means that a stream has no start. */
    void (*open)(struct strbuf *out, const struct answer_shape *a, struct dialect_state *s);
    void (*delta)(struct strbuf *out, const struct answer_shape *a, struct dialect_state *s,
                  const struct answer_delta *d);
    void (*close)(struct strbuf *out, const struct answer_shape *a, struct dialect_state *s,
                  const struct answer_usage *u);
    /* Writes an answer in one piece: each choice in order, as one delta with `first` and `end`
     * set. */
    void (*whole)(struct strbuf *out, const struct answer_shape *a, const struct answer_delta *d,
                  uint32_t n, const struct answer_usage *u);
    /* Writes the end of a failed stream when the end has more than the error. When `fail` is
     * NULL, `error` is used. */
    void (*fail)(struct strbuf *out, const struct answer_shape *a, struct dialect_state *s,
                 const struct api_error *e);
    /* Writes an error as the body of an answer, or as the end of a stream. */
    void (*error)(struct strbuf *out, const struct api_error *e, bool in_stream);
};
