#pragma once
/* Sends answers in the form of SageMaker's runtime, which usually runs between the client and a
 * container, for boto3 and other SDKs. The container's errors become a ModelError, and streams
 * consist of events. Replies are struct http_request. Only the loop thread calls these
 * functions. */
#include "common/http/server/server.h"
#include "gateway/prepare/dialect.h"

struct reply_ops;

extern const struct reply_ops endpoint_whole_ops;  /* replies of InvokeEndpoint */
extern const struct reply_ops endpoint_stream_ops; /* replies of InvokeEndpointWithResponseStream */
/* `dialect_endpoint` writes errors of the gateway itself, such as a missing key. It reads no
 * body. */
extern const struct dialect dialect_endpoint;

/* Refuses a request before it reaches the model: {"__type","code","Message"}. */
void endpoint_refuse(struct http_request *r, int status, const char *type, const char *text);
