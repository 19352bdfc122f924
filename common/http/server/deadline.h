#pragma once
/* Handles the deadlines of a connection, and sets the last one when the server drains. Only
 * common/http includes this header. */
#include <uv.h>

struct conn;
/* The server passes this function down in conn_calls.deadline. */
void conn_on_deadline(uv_timer_t *t);
/* Sets the last deadline of a connection when the server drains. Closes an idle connection. A
 * connection that has sent no request yet has one second to begin one. An incomplete request has
 * five seconds to become complete. */
void conn_drain(struct conn *c);
