#pragma once
/* Bodies that clients of DJL Serving send to a SageMaker endpoint: {"inputs":…,"parameters":{…}},
 * or chat's messages, on one path. Each becomes OpenAI's fields, which the table checks;
 * docs/sagemaker.md says what of which. Four forms answer differently: ROLLING
 * (rolling_batch=vllm), TGI (that with tgi_compat), ASYNC (async_mode) and STATIC (lists, as of a
 * pipeline). Pure; any thread. */
#include "gateway/prepare/dialect.h"

#define DJL_DEFAULT_NEW_TOKENS   30u
#define DJL_STATIC_STREAM_TOKENS 50u

bool djl_read_rolling(const struct prepare_model *m, json_t *owned_body, struct prepared *out);
bool djl_read_tgi(const struct prepare_model *m, json_t *owned_body, struct prepared *out);
bool djl_read_static(const struct prepare_model *m, json_t *owned_body, struct prepared *out);
bool djl_read_async(const struct prepare_model *m, json_t *owned_body, struct prepared *out);

/* The form that the gateway was started with reads the body, and answers `inputs`. */
extern const struct dialect dialect_djl, dialect_djl_async, dialect_djl_tgi, dialect_djl_static;
/* These answer instead where the body holds something else. */
extern const struct dialect dialect_djl_sse, dialect_djl_chat, dialect_djl_chat_sse;
extern const struct dialect dialect_djl_async_chat, dialect_djl_async_prompt;
