#pragma once
/* Defines rows for OpenTelemetry spans of requests. cox-gateway and cox up share them. S has a
 * `struct trace_options trace`. */
#include "common/config/config.h"

struct trace_options {
    const char *endpoint; /* URL of the collector; NULL = no spans */
    const char *service_name;
    double sampling;
};

#define ROWS_TRACE(S)                                                                              \
    {.name = "otlp-traces-endpoint",                                                               \
     .type = OPTION_STRING,                                                                        \
     .offset = offsetof(struct S, trace.endpoint),                                                 \
     .env = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT,OTEL_EXPORTER_OTLP_ENDPOINT",                      \
     .help = "URL of the OpenTelemetry collector that gets a span of each request over "           \
             "OTLP/HTTP, for example http://HOST:4318. Default: none."},                           \
        {.name = "otlp-service-name",                                                              \
         .type = OPTION_STRING,                                                                    \
         .offset = offsetof(struct S, trace.service_name),                                         \
         .def = "coxswain",                                                                        \
         .env = "OTEL_SERVICE_NAME",                                                               \
         .help = "Value of service.name in the spans."},                                           \
        OPT_FLOAT(S, trace.sampling, "otlp-sampling", 0, 1, "1",                                   \
                  "Fraction of requests that get a span if they have no traceparent header. For "  \
                  "other requests the flag in this header decides.")
