#pragma once
/* The gatherer holds the bytes that streams were given in this turn of the loop. They go out when
 * the turn ends, one write for each connection, however many events there are for it;
 * conn_calls.flushed hears of each connection then. Private to common/http. */
#include "common/base/str.h"

struct conn;
struct http_server;
void gather_open(struct http_server *s);
void gather_close(struct http_server *s); /* writes what is there; its handle is one of s's */
void gather_fini(struct http_server *s);
void gather_add(struct conn *c, struct str bytes);
void gather_drop(struct conn *c); /* it closes: what is gathered for it is forgotten */
