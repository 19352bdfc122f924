#pragma once
/* DJL's errors: statuses and bodies. */
#include "common/config/config.h"
#include "gateway/base/api_error.h"

/* The api_error.code of errors that DJL's front end says, in contrast to the model's handler: its
 * own status, and a class's name. */
#define DJL_FRONT_END "front_end"

/* The statuses that DJL lets its operator choose (SERVING_..._HTTP_CODE). */
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

/* The status and the body of an error, in a line, an SSE event or alone. */
int djl_rolling_status(const struct api_error *e);
int djl_async_status(const struct api_error *e);
void djl_rolling_error(struct strbuf *out, const struct api_error *e, bool in_stream);
void djl_rolling_error_sse(struct strbuf *out, const struct api_error *e, bool in_stream);
/* A refusal in front of the model: {"code","type","message"}. */
void djl_front_end_error(struct strbuf *out, const struct api_error *e, int status);
void djl_async_error(struct strbuf *out, const struct api_error *e, bool in_stream);
