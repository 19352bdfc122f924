#pragma once
/* The handlers of DJL Serving's paths, and of SageMaker's in front of them (docs/sagemaker.md).
 * Loop thread only. */
#include "common/http/server/server.h"
#include "gateway/http/state.h"

/* /invocations, /predictions/NAME and, on SageMaker, chat's path. */
void sagemaker_post_invocation(struct gateway *g, struct http_request *r, const struct route *row,
                               uint64_t tenant);
/* /endpoints/NAME/invocations and …/invocations-response-stream. */
void sagemaker_post_endpoint(struct gateway *g, struct http_request *r, const struct route *row,
                             uint64_t tenant);
/* False: not on SageMaker, or not ready and never was: it is /health's to answer. */
bool sagemaker_get_ping(struct gateway *g, struct http_request *r);
/* How batch transform may send its records, where its job does not say. */
void sagemaker_get_execution_parameters(struct gateway *g, struct http_request *r,
                                        const struct route *row, uint64_t tenant);
/* 404 or 405 in DJL's words. */
void sagemaker_answer_unknown(struct http_request *r, int status, const char *allow);
