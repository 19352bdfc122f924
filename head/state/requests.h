#pragma once
/* The live requests of the head core: where each of them is, the memory that they hold, and how
 * they end. Loop thread. */
#include "head/state/head_core.h"

/* The memory that the head holds of requests has a bound, max_request_bytes, shared between tenants
 * (room.h): struct, ids, hashes, lists and texts of each that waits or runs, as it came. Not
 * counted is what a request gets with a slot (seq_make_room), of which there are so many, and its
 * grammar, which has a bound of its own (shared_text.h). STATUS_LIMIT: there is no room now;
 * STATUS_INVALID: there will never be. */
MUST_USE enum status requests_has_room(const struct head_core *h, const struct request *r,
                                       struct error *err);
void requests_take_room(struct head_core *h, struct request *r);
void requests_leave_all(struct head_core *h); /* at the end */

/* Into the list of those that are in no replica, and out of it. */
void requests_hold(struct head_core *h, struct request *r);
void requests_unhold(struct head_core *h, struct request *r);
/* Its scheduler has let it go by itself. */
void requests_leave_replica(struct request *r);
/* Out of its scheduler, and held: to be routed anew. */
void requests_send_away(struct head_core *h, struct request *r);
/* Out of wherever it is and out of the table. */
void requests_drop(struct head_core *h, struct request *r);
/* Ends a live request with an answer that its gateway still gets. */
void requests_end(struct head_core *h, struct request *r, enum finish_reason why,
                  enum status status, const char *text);
