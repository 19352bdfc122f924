#pragma once
/* Manages the live requests of the head core: their places, their memory, and their ends. The
 * code runs on the loop thread. */
#include "head/state/head_core.h"

/* Checks the limit on the memory of requests, max_request_bytes, which tenants share (room.h).
 * The limit covers the struct, ids, hashes, lists and texts of each waiting or running request,
 * as they arrived. It does not cover the memory that a request gets with a slot (seq_make_room),
 * which the number of slots bounds. A request's grammar has a limit of its own (shared_text.h).
 * Returns STATUS_LIMIT when the limit leaves too little memory now, and STATUS_INVALID when the
 * request alone needs more than half of the limit. */
MUST_USE enum status requests_has_room(const struct head_core *h, const struct request *r,
                                       struct error *err);
void requests_take_room(struct head_core *h, struct request *r);
/* Releases the memory charge of every request. It is called when the core is freed. */
void requests_leave_all(struct head_core *h);

/* These two functions add a request to the list of held requests, and remove it from the list. */
void requests_hold(struct head_core *h, struct request *r);
void requests_unhold(struct head_core *h, struct request *r);
/* Records that a scheduler has removed the request itself. */
void requests_leave_replica(struct request *r);
/* Removes a request from its scheduler and holds it, so that it is routed again. */
void requests_send_away(struct head_core *h, struct request *r);
/* Removes a request from its place and from the table. */
void requests_drop(struct head_core *h, struct request *r);
/* Ends a live request with an answer that is still sent to its gateway. */
void requests_end(struct head_core *h, struct request *r, enum finish_reason why,
                  enum status status, const char *text);
