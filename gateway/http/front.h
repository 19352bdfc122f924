#pragma once
/* Every request goes through this, whatever its route: CORS, request ids, its record for the access
 * log and for its span. Loop thread only. */
#include "common/http/server/server.h"
#include "common/options/front.h"
#include "common/options/trace.h"
#include "gateway/trace/export.h"

struct front {
    const struct front_options *o; /* borrowed */
    struct access_log *log;        /* NULL: none */
    bool sagemaker;                /* ids also come as X-Amzn-SageMaker-Inference-Id, and answers
                                      always have one */
    struct trace_export *traces;   /* NULL: none */
    double sampling;
};

MUST_USE enum status front_init(struct front *f, const struct front_options *o,
                                struct metrics *registry, struct error *err);
/* Spans, too, where there is an endpoint. host: this machine's name; borrowed, as are the options.
 */
MUST_USE enum status front_trace(struct front *f, const struct trace_options *o, const char *host,
                                 struct metrics *registry, struct error *err);
void front_fini(struct front *f);
/* Before the key is asked for: a browser's preflight has none. True: it is answered. */
bool front_begin(struct front *f, struct http_request *r);
/* The record of it so far; NULL: nobody wants one. Valid until front_answered. */
struct access_record *front_record(const struct http_request *r);
/* A line of the log, and a span. */
void front_answered(struct front *f, const struct http_request *r, const struct http_answered *a);
