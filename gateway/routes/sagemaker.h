#pragma once
/* Declares handlers of DJL Serving's paths, and of the paths of SageMaker's runtime, which
 * usually forwards to them (docs/reference/sagemaker.md). Only the loop thread calls these
 * functions. */
#include "gateway/routes/state.h"

/* Handles /invocations, /predictions/NAME and, on SageMaker, chat's path. */
void sagemaker_post_invocation(struct api_server *a, const struct call *c);
/* Handles /endpoints/NAME/invocations and …/invocations-response-stream. */
void sagemaker_post_endpoint(struct api_server *a, const struct call *c);
/* Answers /ping. Returns false when this is not SageMaker, or when the model was never ready so
 * far. /health then answers. */
bool sagemaker_get_ping(struct api_server *a, struct http_request *r);
/* Answers how batch transform may send its records when its job does not define it. */
void sagemaker_get_execution_parameters(struct api_server *a, const struct call *c);
/* Answers 404 or 405 in DJL's form. */
void sagemaker_answer_unknown(struct http_request *r, int status, const char *allow);
