#pragma once
/* What is remembered of an HTTP request for the access log and for its span: filled while it lives,
 * read once, when it has been answered. No text and no key of the client's is in it. Loop thread
 * only. */
#include "gateway/request/metrics.h"
#include "gateway/trace/context.h"

struct api_request;

enum { NOTE_NAME_MAX = 128 };

struct request_note {
    struct trace_context trace;
    uint64_t begun_wall_ns;
    char tenant[NOTE_NAME_MAX]; /* whose key it came with, or "" */
    /* of a request for tokens, once it has choices: */
    bool is_llm, stream;
    char id[NOTE_NAME_MAX], model[NOTE_NAME_MAX]; /* as the answer has them */
    uint32_t n, max_tokens, n_choices, n_ended;
    double temperature, top_p;
    uint64_t prompt_tokens, cached_tokens, completion_tokens;
    bool has_first_token, by_length;
    double ttft; /* seconds, with has_first_token */
    struct choice_phases phases;
};

void note_copy(char out[NOTE_NAME_MAX], struct str s); /* cut, at a whole letter, if need be */
/* How the request stands now. */
void request_note_take(struct request_note *n, const struct api_request *r);
/* "stop", "length", "error" or "abort". http_status: its answer's, aborted: the client left. */
const char *request_note_outcome(const struct request_note *n, int http_status, bool aborted);
