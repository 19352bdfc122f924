#pragma once
/* Declares DJL's errors: their statuses and bodies. */
#include "common/config/config.h"
#include "gateway/base/api_error.h"

/* `DJL_FRONT_END` is the api_error.code of errors of DJL's front end, as opposed to the model's
 * handler. These errors have their own status, and the name of a class. */
#define DJL_FRONT_END "front_end"

/* `djl_statuses` holds the statuses that DJL's operators may choose (SERVING_..._HTTP_CODE). */
struct djl_statuses {
    int bad_request, throttle_error, wlm_error, server_error, timeout;
};
#define DJL_STATUSES                                                                               \
    {                                                                                              \
        .bad_request = 400, .throttle_error = 503, .wlm_error = 503, .server_error = 500,          \
        .timeout = 504                                                                             \
    }
/* Reads statuses from words of the form NAME=STATUS. */
MUST_USE enum status djl_read_statuses(const struct option_list *words, struct djl_statuses *out,
                                       struct error *err);
/* Sets the statuses of the whole process. Call this function before requests are served. */
void djl_set_statuses(const struct djl_statuses *s);

/* These functions give the status and the body of an error: in a line, in an SSE event or alone. */
int djl_rolling_status(const struct api_error *e);
int djl_async_status(const struct api_error *e);
void djl_rolling_error(struct strbuf *out, const struct api_error *e, bool in_stream);
void djl_rolling_error_sse(struct strbuf *out, const struct api_error *e, bool in_stream);
/* Appends the error of a request that was refused before it reached the model:
 * {"code","type","message"}. */
void djl_front_end_error(struct strbuf *out, const struct api_error *e, int status);
void djl_async_error(struct strbuf *out, const struct api_error *e, bool in_stream);
