#pragma once
/* Writes JSON that OpenAI's endpoints share: first members, usage, ids, ends of choices,
 * framing, the list of models. Field order and extra fields are vLLM's. The functions are pure
 * and append to a buffer. */
#include "gateway/prepare/dialect.h"

enum { OPENAI_TOKEN_MAX = 160 };

/* Appends {"id":…,"object":…,"created":…,"model":…,"system_fingerprint":… and nothing after it. */
void openai_head(struct strbuf *out, const struct answer_shape *a, const char *object);
/* Appends data: and the beginning of a chunk up to "[{"index":". The beginning is copied from
 * the request's `chunk_head` if there is one. */
void openai_chunk_begin(struct strbuf *out, const struct answer_shape *a, const char *object);
/* Appends ,"NAME":[…] */
void openai_ids(struct strbuf *out, const char *name, const uint32_t *ids, uint32_t n);
void openai_usage(struct strbuf *out, const struct answer_shape *a, const struct answer_usage *u);
/* Appends ,"finish_reason":…,"stop_reason":… Both are null until the choice ends. stop_reason is
 * a stop string, a stop id, or null. */
void openai_finish(struct strbuf *out, const struct answer_delta *d);
/* Appends the end of a chunk: ,"usage":… when the request asks for it, and the brace. `u` is the
 * usage, or NULL for null. */
void openai_chunk_end(struct strbuf *out, const struct answer_shape *a,
                      const struct answer_usage *u);
/* Returns a token as shown to the client: its bytes (empty for an invalid id), or "token_id:ID"
 * in `buf`. */
struct str openai_token(const struct answer_shape *a, uint32_t id, char buf[OPENAI_TOKEN_MAX]);
/* Returns a token's unique name. A token with only part of a character is "bytes:\xf0\x9f" in
 * `buf`, as in OpenAI's completions, so different bytes never have the same name. Any other name
 * is the token as shown to the client. */
struct str openai_token_name(const struct answer_shape *a, uint32_t id, char buf[OPENAI_TOKEN_MAX]);
/* Appends ,"NAME":null to an answer in one piece. vLLM's answers have every field, and SDKs read
 * fields as attributes. */
void openai_absent(struct strbuf *out, const struct answer_shape *a, const char *name);
/* Appends ,"prompt_token_ids":…,"prompt_text":… when the request asks for them. */
void openai_prompt(struct strbuf *out, const struct answer_shape *a, const struct prompt *p);
/* Appends a log-probability. -inf becomes -9999, as in vLLM, because JSON has no -inf. */
void openai_logprob(struct strbuf *out, float v);
/* Appends a token with its own log-probability and the best alternatives:
 * {"token":…,"logprob":…,"bytes":…,"top_…":…}. */
void openai_logprobs_of(struct strbuf *out, const struct answer_shape *a,
                        const struct token_logprobs *t);
/* Returns false when log-probabilities are written as null. */
bool openai_has_logprobs(const struct answer_shape *a, const struct answer_delta *d);

/* These functions are shared parts of dialects. They give the type of a stream, its end (with
 * the usage chunk when the request asks for it), and OpenAI's errors. */
const char *openai_stream_type(const struct params *p);
void openai_close(struct strbuf *out, const struct answer_shape *a, const char *object,
                  const struct answer_usage *u);
void openai_error(struct strbuf *out, const struct api_error *e, bool in_stream);

/* `openai_model` is an entry of /v1/models. `parent` is the model's name for an adapter, and
 * NULL for a model. `reason` says why the model does not serve; "" = it serves. */
struct openai_model {
    const char *name, *root, *parent, *state, *reason;
    uint64_t created_s;
    uint32_t max_model_len;
};
void openai_model(struct strbuf *out, const struct openai_model *m);
