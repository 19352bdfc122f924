#pragma once
/* Errors of the server's own, which are a connection's last answer. Private to common/http. */

struct conn;
void conn_refuse(struct conn *c, int status, const char *text);
/* Answers 503 or, where it would never have room, 413. */
void conn_refuse_for_room(struct conn *c);
