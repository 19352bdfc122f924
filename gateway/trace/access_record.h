#pragma once
/* `access_record` keeps what the access log and a request's span say of it. It is filled while the
 * request lives and read once, when it was answered. No text and no key of a client is in it. Loop
 * thread only. */
#include "gateway/request/metrics.h"
#include "gateway/trace/context.h"

struct api_request;

enum { ACCESS_RECORD_NAME_MAX = 128 };

struct access_record {
    struct trace_context trace;
    uint64_t begun_wall_ns;
    char tenant[ACCESS_RECORD_NAME_MAX]; /* whose key it came with, or "" */
    /* of a request for tokens, once it has choices: */
    bool is_llm, stream;
    char id[ACCESS_RECORD_NAME_MAX], model[ACCESS_RECORD_NAME_MAX]; /* as the answer has them */
    uint32_t n, max_tokens, n_choices, n_ended;
    double temperature, top_p;
    uint64_t prompt_tokens, cached_tokens, completion_tokens;
    bool has_first_token, by_length;
    double ttft; /* seconds, with has_first_token */
    struct choice_phases phases;
};

void access_record_copy(char out[ACCESS_RECORD_NAME_MAX],
                        struct str s); /* cut, at a whole letter, if need be */
/* How the request stands now. */
void access_record_take(struct access_record *n, const struct api_request *r);
/* "stop", "length", "error" or "abort". http_status: its answer's, aborted: the client left. */
const char *access_record_outcome(const struct access_record *n, int http_status, bool aborted);
