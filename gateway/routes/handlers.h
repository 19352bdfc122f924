#pragma once
/* Declares the handlers of the routes, except for SageMaker's (sagemaker.h) and the chat page's. */
#include "gateway/routes/state.h"

void route_get_health(struct api_server *a, const struct call *c);
void route_get_accepting(struct api_server *a, const struct call *c);
void route_get_admin(struct api_server *a, const struct call *c);
void route_get_metrics(struct api_server *a, const struct call *c);
void route_get_version(struct api_server *a, const struct call *c);
void route_get_openapi(struct api_server *a, const struct call *c);
void route_get_models(struct api_server *a, const struct call *c);
void route_get_model(struct api_server *a, const struct call *c);
void route_post_prompt(struct api_server *a, const struct call *c);
void route_post_chat(struct api_server *a, const struct call *c);
void route_get_ping(struct api_server *a, const struct call *c);
void route_put_model(struct api_server *a, const struct call *c);
void route_delete_model(struct api_server *a, const struct call *c);
void route_put_route(struct api_server *a, const struct call *c);
void route_delete_route(struct api_server *a, const struct call *c);
void route_post_load_adapter(struct api_server *a, const struct call *c);
void route_post_unload_adapter(struct api_server *a, const struct call *c);
void route_files_and_batches(struct api_server *a, const struct call *c);
void route_no_response(struct api_server *a, const struct call *c);
