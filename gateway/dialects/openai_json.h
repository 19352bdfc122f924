#pragma once
/* What OpenAI's JSON has in common whatever the endpoint: heads, usage, ids, the ends of choices,
 * framing, the list of models. Field order and extra fields are vLLM's. Pure: appends to a buffer.
 */
#include "gateway/prepare/dialect.h"

enum { OPENAI_TOKEN_MAX = 160 };

/* {"id":…,"object":…,"created":…,"model":…,"system_fingerprint":… and no more. */
void openai_head(struct strbuf *out, const struct answer_shape *a, const char *object);
/* data: and the head of a chunk up to its choices' "[{"index":": the request's chunk_head, or anew
 */
void openai_chunk_begin(struct strbuf *out, const struct answer_shape *a, const char *object);
/* ,"NAME":[…] */
void openai_ids(struct strbuf *out, const char *name, const uint32_t *ids, uint32_t n);
void openai_usage(struct strbuf *out, const struct answer_shape *a, const struct answer_usage *u);
/* ,"finish_reason":…,"stop_reason":…: null until the end; a stop string, a stop id, or null. */
void openai_finish(struct strbuf *out, const struct answer_delta *d);
/* The end of a chunk: ,"usage":… when it is asked for, and the brace. u: NULL, or the numbers. */
void openai_chunk_end(struct strbuf *out, const struct answer_shape *a,
                      const struct answer_usage *u);
/* How a token is shown: its bytes (empty for an id that is none), or "token_id:ID" in buf. */
struct str openai_token(const struct answer_shape *a, uint32_t id, char buf[OPENAI_TOKEN_MAX]);
/* What a token is called among others: the same, but for a part of a character "bytes:\xf0\x9f" in
 * buf, as OpenAI's completions have it, so that no two names of different bytes are one. */
struct str openai_token_name(const struct answer_shape *a, uint32_t id, char buf[OPENAI_TOKEN_MAX]);
/* ,"NAME":null in an answer that is no stream: vLLM's have each field, and SDKs read them all as
 * attributes. */
void openai_absent(struct strbuf *out, const struct answer_shape *a, const char *name);
/* ,"prompt_token_ids":…,"prompt_text":… as far as they were asked for. */
void openai_prompt(struct strbuf *out, const struct answer_shape *a, const struct prompt *p);
/* JSON has no -inf: -9999, as in vLLM. */
void openai_logprob(struct strbuf *out, float v);
/* A token with its own and its best alternatives: {"token":…,"logprob":…,"bytes":…,"top_…":…}. */
void openai_logprobs_of(struct strbuf *out, const struct answer_shape *a,
                        const struct token_logprobs *t);
/* Whether there is anything to say of log-probabilities, or null. */
bool openai_has_logprobs(const struct answer_shape *a, const struct answer_delta *d);

/* Parts of a dialect: a stream of server-sent events, its end (the chunk with the usage when that
 * is asked for), OpenAI's errors in it. */
const char *openai_stream_type(const struct params *p);
void openai_close(struct strbuf *out, const struct answer_shape *a, const char *object,
                  const struct answer_usage *u);
void openai_error(struct strbuf *out, const struct api_error *e, bool in_stream);

/* An entry of /v1/models. parent: of an adapter, the model's name; else NULL. */
struct openai_model {
    const char *name, *root, *parent;
    uint64_t created_s;
    uint32_t max_model_len;
};
void openai_model(struct strbuf *out, const struct openai_model *m);
