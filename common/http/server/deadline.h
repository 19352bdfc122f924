#pragma once
/* The end of a connection's time, and its last seconds when the server drains. Private to
 * common/http. */
#include <uv.h>

struct conn;
void conn_on_deadline(uv_timer_t *t); /* the server hands it down as conn_calls.deadline */
/* The server drains: closes an idle one; one that has asked nothing yet has a second to, half a
 * request five to be whole. */
void conn_drain(struct conn *c);
