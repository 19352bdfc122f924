#pragma once
/* What clients of DJL Serving send to a SageMaker endpoint: {"inputs":…,"parameters":{…}}, or
 * chat's messages, on one path. Each becomes OpenAI's fields, which the table checks;
 * docs/sagemaker.md says what of which. Four forms answer differently: ROLLING
 * (rolling_batch=vllm), TGI (that with tgi_compat), ASYNC (async_mode) and STATIC (lists, as of a
 * pipeline). Pure; any thread. */
#include "common/config/config.h"
#include "gateway/prepare/dialect.h"

#define DJL_DEFAULT_NEW_TOKENS   30u
#define DJL_STATIC_STREAM_TOKENS 50u

bool djl_read_rolling(const struct prepare_model *m, json_t *owned_body, struct prepared *out);
bool djl_read_tgi(const struct prepare_model *m, json_t *owned_body, struct prepared *out);
bool djl_read_static(const struct prepare_model *m, json_t *owned_body, struct prepared *out);
bool djl_read_async(const struct prepare_model *m, json_t *owned_body, struct prepared *out);

/* api_error.code of what DJL's front end says, in contrast to the model's handler: its own status,
 * and a class's name. */
#define DJL_FRONT_END "front_end"

/* What is answered with which status where DJL lets it be chosen (SERVING_..._HTTP_CODE). */
struct djl_statuses {
    int bad_request, throttle_error, wlm_error, server_error, timeout;
};
#define DJL_STATUSES                                                                               \
    {                                                                                              \
        .bad_request = 400, .throttle_error = 503, .wlm_error = 503, .server_error = 500,          \
        .timeout = 504                                                                             \
    }
/* NAME=STATUS each. */
MUST_USE enum status djl_read_statuses(const struct option_list *words, struct djl_statuses *out,
                                       struct error *err);
/* Before requests are served; for the whole process. */
void djl_set_statuses(const struct djl_statuses *s);

/* The form that the gateway was started with reads the body, and answers `inputs`. */
extern const struct dialect dialect_djl, dialect_djl_async, dialect_djl_tgi, dialect_djl_static;
/* These answer instead where the body holds something else. */
extern const struct dialect dialect_djl_sse, dialect_djl_chat, dialect_djl_chat_sse;
extern const struct dialect dialect_djl_async_chat, dialect_djl_async_prompt;

/* The writers of `inputs` (djl_json.c). */
void djl_delta(struct strbuf *out, const struct answer_shape *a, struct dialect_state *s,
               const struct answer_delta *d);
void djl_whole(struct strbuf *out, const struct answer_shape *a, const struct answer_delta *d,
               uint32_t n, const struct answer_usage *u);
void djl_close(struct strbuf *out, const struct answer_shape *a, struct dialect_state *s,
               const struct answer_usage *u);
/* Static batches (djl_static.c). */
void djl_static_delta(struct strbuf *out, const struct answer_shape *a, struct dialect_state *s,
                      const struct answer_delta *d);
void djl_static_whole(struct strbuf *out, const struct answer_shape *a,
                      const struct answer_delta *d, uint32_t n, const struct answer_usage *u);
void djl_static_error(struct strbuf *out, const struct api_error *e, bool in_stream);
/* Which part of a text each of its tokens brought. A token whose bytes are not there (a special one
 * that is not shown, half a character, one behind a stop string) has none, the last one has all
 * that is left: joined they are the text. */
struct djl_pieces {
    struct str text;
    size_t given, matched;
};
struct djl_pieces djl_pieces_of(const struct answer_delta *d);
struct str djl_next_piece(struct djl_pieces *p, const struct answer_shape *a, uint32_t id,
                          bool last);
/* "generated_text":…, behind the prompt where that is asked for. said: what was given before. */
void djl_generated(struct strbuf *out, const struct answer_shape *a, const struct answer_delta *d,
                   struct str said);
/* The status and the body of an error, in a line, an SSE event or alone (djl_error.c). */
int djl_rolling_status(const struct api_error *e);
int djl_async_status(const struct api_error *e);
void djl_rolling_error(struct strbuf *out, const struct api_error *e, bool in_stream);
void djl_rolling_error_sse(struct strbuf *out, const struct api_error *e, bool in_stream);
/* What is refused in front of the model: {"code","type","message"}. */
void djl_front_end_error(struct strbuf *out, const struct api_error *e, int status);
void djl_async_error(struct strbuf *out, const struct api_error *e, bool in_stream);
