#pragma once
/* From state to state, and the end of a connection. Private to common/http. */
#include "common/http/conn/state.h"

void conn_enter(struct conn *c, enum conn_state next);
void conn_linger(struct conn *c);  /* throws away what comes, for a while, then closes */
void conn_close(struct conn *c);   /* idempotent; legal in every callback */
void conn_abort(struct conn *c);   /* tells the handler, then closes */
void conn_release(struct conn *c); /* one of its open_handles is gone: freed at 0 */
void conn_tell_answered(struct conn *c, bool aborted);
bool conn_is_idle(const struct conn *c);
/* It has a request, or may still bring one. */
bool conn_has_work(const struct conn *c);
