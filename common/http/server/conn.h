#pragma once
/* A connection from its beginning to each request and on to the next. Private to common/http. */
struct conn;
struct http_server;

/* fd: accepted already; -1: the listener has it. NULL: it is gone already. */
struct conn *conn_accept(struct http_server *s, int fd);
void conn_refuse_place(struct conn *c); /* 503: there are too many */
/* The answer is out: the next request, or the end. */
void conn_after_flush(struct conn *c);
/* The server hands these two down as conn_calls. */
void conn_written(struct conn *c, int rc);
void conn_flushed(struct conn *c);
