#pragma once
/* Reads bodies of DJL Serving's clients for a SageMaker endpoint. On one path a body is
 * {"inputs":…,"parameters":{…}}, or has chat's messages. Each body is converted to OpenAI's
 * fields, which the table of fields checks. The list is in docs/reference/sagemaker.md.
 * Four forms differ in their answers: ROLLING (rolling_batch=vllm), TGI (the same with
 * tgi_compat), ASYNC (async_mode) and STATIC (lists, as in a pipeline). The functions are pure,
 * and usable on any thread. */
#include "gateway/prepare/dialect.h"

#define DJL_DEFAULT_NEW_TOKENS   30u
#define DJL_STATIC_STREAM_TOKENS 50u

enum djl_form { DJL_ROLLING = 1, DJL_ASYNC = 2, DJL_TGI = 4, DJL_STATIC = 8 };

/* `djl_answers` holds the dialects of the answer for bodies that need another dialect than the
 * form's own. */
struct djl_answers {
    const struct dialect *sse, *chat, *chat_sse, *async_chat, *async_prompt;
};
bool djl_read(enum djl_form form, const struct djl_answers *answers, const struct prepare_model *m,
              json_t *owned_body, struct prepared *out);
