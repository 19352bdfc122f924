#pragma once
/* Handlers of the routes about models: the list (models.c), and the admin's list and changes
 * (edit_models.c). Only the loop thread calls them. */
#include "gateway/routes/state.h"

void route_get_health(struct api_server *a, const struct call *c);
void route_get_models(struct api_server *a, const struct call *c);
void route_get_model(struct api_server *a, const struct call *c);
void route_get_set(struct api_server *a, const struct call *c);
void route_patch_model(struct api_server *a, const struct call *c);
void route_put_model(struct api_server *a, const struct call *c);
void route_delete_model(struct api_server *a, const struct call *c);
void route_put_route(struct api_server *a, const struct call *c);
void route_delete_route(struct api_server *a, const struct call *c);
