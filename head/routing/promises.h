#pragma once
/* Decides about promised times of the first token (docs/develop/head.md, "Promises"). The code
 * runs on the loop thread. */
#include "head/state/head_core.h"

/* Decides about the request's promise, if it has one that is not decided. `l` is the slot that
 * the request is about to enter, and r->n_hit is set. Returns false when the promise cannot be
 * kept; the request has then ended. */
bool promises_admit(struct head_core *h, struct request *r, struct engine_slot *l);
/* Begins, and ends, a pass over the held requests. */
void promises_begin_pass(struct head_core *h);
void promises_end_pass(struct head_core *h);
/* Returns true when the request may enter the slot now. A request that would break the promise of
 * an earlier one waits until that one's last chunk is planned, and the slot is shut to requests
 * behind it for this pass. A request of a better class than the promised one, or one that returns
 * after a loss, waits for nothing. */
bool promises_let_in(struct head_core *h, const struct request *r, struct engine_slot *l);
/* Returns true when the slot is shut to this request in this pass. */
bool promises_shut(const struct head_core *h, const struct engine_slot *l, const struct request *r);
/* Returns true when every slot, or with `any` one slot, is shut to this request in this pass. */
bool promises_shut_out(const struct head_core *h, const struct request *r, bool any);
/* Counts a refusal, and writes its text to `out`. */
void promises_refuse(struct head_core *h, const struct request_promise *p, char *out, size_t size);
/* Returns the seconds after which a refused request may come again. */
uint32_t promises_retry_after_s(const struct request_promise *p);
/* Counts a prompt that was placed in this slot, for the rate of arrivals. */
void promises_placed(struct head_core *h, const struct request *r, struct engine_slot *l);
/* Records that the request got its first token now, or ended. */
void promises_on_first_token(struct head_core *h, struct request *r);
/* Records a plan of the slot, and the time of a step whose result has arrived. */
void promises_on_plan(struct engine_slot *l, const struct msg_plan *plan);
void promises_on_result(struct head_core *h, struct engine_slot *l, const struct msg_result *m);
