#pragma once
/* A connection from its start through one request after the other. Private to common/http. */
struct conn;
struct http_server;

/* Takes a connection: `fd` if it was accepted already, or the listener's next one when fd is -1.
 * Returns NULL when the client is already gone. */
struct conn *conn_accept(struct http_server *s, int fd);
void conn_refuse_place(struct conn *c); /* answers 503: too many connections */
/* Called when the answer is written: reads the next request or closes. */
void conn_after_flush(struct conn *c);
/* The server passes these two down in conn_calls. */
void conn_written(struct conn *c, int rc);
void conn_flushed(struct conn *c);
