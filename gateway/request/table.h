#pragma once
/* Keeps the table of requests: the list of all live requests, and a hash by id of the requests
 * with choices at the head. */
#include "gateway/request/state.h"

/* Adds a live request, which also counts as open for its key. */
void request_table_add(struct api_request *r);
void request_table_remove(struct api_request *r);
/* Adds the request to the hash by id, so that tokens find it. */
void request_table_enter(struct api_request *r);
void request_table_leave(struct api_request *r);
struct api_request *request_table_find(const struct serving *s, struct request_id id);
