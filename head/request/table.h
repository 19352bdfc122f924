#pragma once
/* Keeps all live requests by (id, choice). The table owns the requests and has a size limit. The
 * code does no I/O. */
#include "head/request/state.h"

struct request_table;
struct request_table *request_table_new(uint32_t max_requests);
void request_table_free(struct request_table *t); /* also frees the requests in the table */
struct request *request_table_find(const struct request_table *t, struct request_id id,
                                   uint32_t i_choice);
/* Adds a request. Returns STATUS_EXISTS when the table has a request with the same id and
 * choice, and STATUS_LIMIT when it is full. */
MUST_USE enum status request_table_add(struct request_table *t, struct request *owned_r);
/* Removes the request without freeing it. */
void request_table_remove(struct request_table *t, struct request *r);
uint32_t request_table_count(const struct request_table *t);
struct request *request_table_next(const struct request_table *t, const struct request *after);
/* These functions are for walks in pieces: a request keeps its place in the table for its whole
 * life. request_table_at returns NULL for an empty place. */
uint32_t request_table_n_places(const struct request_table *t);
struct request *request_table_at(const struct request_table *t, uint32_t i_place);
