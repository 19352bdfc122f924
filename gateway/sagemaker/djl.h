#pragma once
/* Bodies that clients of DJL Serving send to a SageMaker endpoint: {"inputs":…,"parameters":{…}},
 * or chat's messages, on one path. Each becomes OpenAI's fields, which the table checks;
 * docs/reference/sagemaker.md says what of which. Four forms answer differently: ROLLING
 * (rolling_batch=vllm), TGI (that with tgi_compat), ASYNC (async_mode) and STATIC (lists, as of a
 * pipeline). Pure; any thread. */
#include "gateway/prepare/dialect.h"

#define DJL_DEFAULT_NEW_TOKENS   30u
#define DJL_STATIC_STREAM_TOKENS 50u

enum djl_form { DJL_ROLLING = 1, DJL_ASYNC = 2, DJL_TGI = 4, DJL_STATIC = 8 };

/* The dialects that answer instead of the form's own one where the body holds something else. */
struct djl_answers {
    const struct dialect *sse, *chat, *chat_sse, *async_chat, *async_prompt;
};
bool djl_read(enum djl_form form, const struct djl_answers *answers, const struct prepare_model *m,
              json_t *owned_body, struct prepared *out);
