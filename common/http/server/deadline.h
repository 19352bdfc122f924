#pragma once
/* The end of a connection's waiting time, and its last seconds when the server drains. Private
 * to common/http. */
#include <uv.h>

struct conn;
void conn_on_deadline(uv_timer_t *t); /* the server passes it down in conn_calls.deadline */
/* Called when the server drains. Closes an idle connection. A connection that has sent no
 * request yet has one second to begin one; an incomplete request has five seconds to become
 * complete. */
void conn_drain(struct conn *c);
