#pragma once
/* Answers as SageMaker's runtime gives them in front of a container, for boto3 and its like: the
 * container's errors are a ModelError, a stream is in events. Replies are struct http_request. Loop
 * thread only. */
#include "common/http/server/server.h"
#include "gateway/prepare/dialect.h"

struct reply_ops;

extern const struct reply_ops endpoint_whole_ops;  /* InvokeEndpoint */
extern const struct reply_ops endpoint_stream_ops; /* InvokeEndpointWithResponseStream */
/* What the gateway itself refuses, a missing key for instance; it reads no body. */
extern const struct dialect dialect_endpoint;

/* A refusal in front of the model: {"__type","code","Message"}. */
void endpoint_refuse(struct http_request *r, int status, const char *type, const char *text);
