#pragma once
/* The handlers of DJL Serving's paths, and of SageMaker's in front of them
 * (docs/reference/sagemaker.md). Loop thread only. */
#include "gateway/routes/state.h"

/* /invocations, /predictions/NAME and, on SageMaker, chat's path. */
void sagemaker_post_invocation(struct api_server *a, const struct call *c);
/* /endpoints/NAME/invocations and …/invocations-response-stream. */
void sagemaker_post_endpoint(struct api_server *a, const struct call *c);
/* False: not on SageMaker, or not ready and never was: it is /health's to answer. */
bool sagemaker_get_ping(struct api_server *a, struct http_request *r);
/* How batch transform may send its records, where its job does not say. */
void sagemaker_get_execution_parameters(struct api_server *a, const struct call *c);
/* 404 or 405 in DJL's words. */
void sagemaker_answer_unknown(struct http_request *r, int status, const char *allow);
