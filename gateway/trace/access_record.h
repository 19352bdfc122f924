#pragma once
/* `access_record` holds the facts about a request for the access log and the span. The record is
 * filled while the request is open and read once, after the answer. It contains no text and no
 * key of a client. Only the loop thread uses a record. */
#include "gateway/request/metrics.h"
#include "gateway/trace/context.h"

struct api_request;

enum { ACCESS_RECORD_NAME_MAX = 128 };

struct access_record {
    struct trace_context trace;
    uint64_t begun_wall_ns;
    char tenant[ACCESS_RECORD_NAME_MAX]; /* name of the key's tenant, or "" */
    /* the following fields are set for a request for tokens, once it has choices */
    bool is_llm, stream;
    /* id and model as in the answer */
    char id[ACCESS_RECORD_NAME_MAX], model[ACCESS_RECORD_NAME_MAX];
    uint32_t n, max_tokens, n_choices, n_ended;
    double temperature, top_p;
    uint64_t prompt_tokens, cached_tokens, completion_tokens;
    bool has_first_token, by_length;
    double ttft; /* seconds to the first token; valid with `has_first_token` */
    struct choice_phases phases;
};

/* Copies `s` into `out`. A text that is too long is cut between characters. */
void access_record_copy(char out[ACCESS_RECORD_NAME_MAX], struct str s);
/* Copies the request's current state into the record. */
void access_record_take(struct access_record *n, const struct api_request *r);
/* Returns "stop", "length", "error" or "abort". `http_status` is the status of the answer.
 * `aborted` means that the client disconnected. */
const char *access_record_outcome(const struct access_record *n, int http_status, bool aborted);
