#pragma once
/* The table of requests: all live ones, and by id those whose choices are the head's. */
#include "gateway/request/state.h"

/* A request is live from its first to its last moment, and open for its key. */
void request_table_add(struct api_request *r);
void request_table_remove(struct api_request *r);
/* It has choices, which tokens come for. */
void request_table_enter(struct api_request *r);
void request_table_leave(struct api_request *r);
struct api_request *request_table_find(const struct serving *s, struct request_id id);
