#pragma once
/* Declares the processing that is common to all routes: CORS, request ids, and the record of
 * each request for the access log and the span. Only the loop thread calls these functions. */
#include "common/http/server/server.h"
#include "common/options/front.h"
#include "common/options/trace.h"
#include "gateway/trace/export.h"

struct front {
    const struct front_options *o; /* options of this module; borrowed */
    struct access_log *log;        /* writer of the access log; NULL = none */
    bool sagemaker; /* accept ids from X-Amzn-SageMaker-Inference-Id, and give every answer an id */
    struct trace_export *traces; /* export of spans; NULL = none */
    double sampling;
};

MUST_USE enum status front_init(struct front *f, const struct front_options *o,
                                struct metrics *registry, struct error *err);
/* Starts the export of spans when an endpoint is given. `host` is this machine's name, borrowed
 * like the options. */
MUST_USE enum status front_trace(struct front *f, const struct trace_options *o, const char *host,
                                 struct metrics *registry, struct error *err);
void front_fini(struct front *f);
/* Handles CORS and the request's id. Call this function before the key is checked, because a
 * browser's preflight has no key. Returns true when the request was answered. */
bool front_begin(struct front *f, struct http_request *r);
/* Returns the request's record so far, valid until `front_answered`. Returns NULL when neither
 * log nor spans need a record. */
struct access_record *front_record(const struct http_request *r);
/* Writes a line of the access log, and a span. */
void front_answered(struct front *f, const struct http_request *r, const struct http_answered *a);
