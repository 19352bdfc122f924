#pragma once
/* Changes the state of a connection and ends it. Private to common/http. */
#include "common/http/conn/state.h"

void conn_enter(struct conn *c, enum conn_state next);
void conn_linger(struct conn *c); /* drops incoming bytes for a while, then closes the connection */
/* Closes the connection. The call is idempotent and allowed in every callback. */
void conn_close(struct conn *c);
void conn_abort(struct conn *c);   /* closes the connection, then tells the handler */
void conn_release(struct conn *c); /* drops one of open_handles; frees the connection at 0 */
void conn_tell_answered(struct conn *c, bool aborted);
bool conn_is_idle(const struct conn *c);
/* Tells whether the connection has a request or may still bring one. */
bool conn_has_work(const struct conn *c);
