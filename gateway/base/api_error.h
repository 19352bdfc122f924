#pragma once
/* `api_error` describes an error as a client sees it: OpenAI's JSON with vLLM's types.
 *   {"error":{"message":…,"type":…,"param":…|null,"code":…}}
 * `code` is a word such as "model_not_found" where OpenAI defines one, and the HTTP status
 * elsewhere. An `api_error` is a plain value without pointers to free, usable on any thread. */
#include "common/base/str.h"

/* `API_COMPILE_LIMIT` is the code of a compile that reached a limit of this gateway. The same
 * source would reach that limit again. */
#define API_COMPILE_LIMIT        "compile_limit"
#define API_THREAD_NOT_FOUND     "thread_not_found" /* code of Anthropic's API that clients check */
#define API_FIRST_TOKEN_TOO_LATE "first_token_too_late"

struct api_error {
    int http_status;   /* HTTP status of the error; 0 = no error */
    const char *code;  /* word for `code`, static; NULL = the HTTP status as a number */
    char param[64];    /* name of the field at fault; "" = null */
    char message[400]; /* text of the error; may be invalid UTF-8, which the JSON writer replaces */
    uint32_t retry_after_s; /* seconds for the Retry-After header; 0 = no header */
};

/* Fills `e` and returns false, so that a check reads `return api_error_set(e, 400, "n", …)`.
 * Keeps the first error, because later ones are usually its consequence. */
bool api_error_set(struct api_error *e, int http_status, const char *param, const char *fmt, ...)
    PRINTF_LIKE(4, 5);
void api_error_json(const struct api_error *e, struct strbuf *out);
