#pragma once
/* Runs a connection from its start and handles its requests one after the other. Only
 * common/http includes this header. */
struct conn;
struct http_server;

/* Accepts a connection. `fd` is its descriptor, or -1 to accept the listener's next connection.
 * Returns NULL when the client has already disconnected. */
struct conn *conn_accept(struct http_server *s, int fd);
void conn_refuse_place(struct conn *c); /* answers 503, because there are too many connections */
/* Reads the next request or closes the connection. It is called when the answer is written. */
void conn_after_flush(struct conn *c);
/* The server passes conn_written and conn_flushed down in conn_calls. */
void conn_written(struct conn *c, int rc);
void conn_flushed(struct conn *c);
