#pragma once
/* Serves GET /v1/files/ID/content. Only the loop thread calls these functions. */
#include "gateway/batches/call.h"

void state_download_start(struct state_calls *all, struct http_request *r, uint64_t tenant,
                          struct str id);
void state_downloads_on_drain(struct state_calls *all, const struct http_request *r);
bool state_downloads_on_abort(struct state_calls *all, const struct http_request *r);
void state_downloads_tick(struct state_calls *all);
