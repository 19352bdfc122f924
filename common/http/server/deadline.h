#pragma once
/* What happens when a connection's time is over. Private to common/http. */
#include <uv.h>

struct conn;
void conn_on_deadline(uv_timer_t *t); /* of conn_calls */
/* The server drains: closes an idle one; one that has asked nothing yet has a second to, half a
 * request five to be whole. */
void conn_drain(struct conn *c);
