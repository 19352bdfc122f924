#pragma once
/* What clients of DJL Serving send to a SageMaker endpoint: {"inputs":…,"parameters":{…}}, or
 * chat's messages, on one path. Each becomes OpenAI's fields, which the table checks;
 * docs/sagemaker.md says what of which. Two forms answer differently: ROLLING (rolling_batch=vllm)
 * and ASYNC (async_mode). Pure; any thread. */
#include "gateway/dialect.h"

#define DJL_DEFAULT_NEW_TOKENS 30u

bool djl_read_rolling(const struct prepare_model *m, json_t *owned_body, struct prepared *out);
bool djl_read_async(const struct prepare_model *m, json_t *owned_body, struct prepared *out);

/* Who answers, by what the body holds; dialect_djl and dialect_djl_async answer `inputs`. */
extern const struct dialect dialect_djl_sse, dialect_djl_chat, dialect_djl_chat_sse;
extern const struct dialect dialect_djl_async_chat, dialect_djl_async_prompt;

/* The writers of `inputs` (djl_json.c). */
void djl_delta(struct strbuf *out, const struct answer_shape *a, struct dialect_state *s,
               const struct answer_delta *d);
void djl_whole(struct strbuf *out, const struct answer_shape *a, const struct answer_delta *d,
               uint32_t n, const struct answer_usage *u);
void djl_close(struct strbuf *out, const struct answer_shape *a, struct dialect_state *s,
               const struct answer_usage *u);
/* The status and the body of an error, in a line, an SSE event or alone (djl_error.c). */
int djl_rolling_status(const struct api_error *e);
int djl_async_status(const struct api_error *e);
void djl_rolling_error(struct strbuf *out, const struct api_error *e, bool in_stream);
void djl_rolling_error_sse(struct strbuf *out, const struct api_error *e, bool in_stream);
void djl_async_error(struct strbuf *out, const struct api_error *e, bool in_stream);
