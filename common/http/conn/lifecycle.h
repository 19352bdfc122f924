#pragma once
/* Changes the state of a connection and ends it. Only common/http includes this header. */
#include "common/http/conn/state.h"

void conn_enter(struct conn *c, enum conn_state next);
/* discards received bytes for a while, then closes the connection */
void conn_linger(struct conn *c);
/* Closes the connection. The call is idempotent and allowed in every callback. */
void conn_close(struct conn *c);
void conn_abort(struct conn *c);   /* closes the connection, then calls the handler's on_abort */
void conn_release(struct conn *c); /* drops one of open_handles; frees the connection at 0 */
void conn_tell_answered(struct conn *c, bool aborted);
bool conn_is_idle(const struct conn *c);
/* Returns true when the connection has a request or may still receive one. */
bool conn_has_work(const struct conn *c);
