#pragma once
/* Sends the error answers of the server itself. Each is the last answer of its connection. Only
 * common/http includes this header. */

struct conn;
void conn_refuse(struct conn *c, int status, const char *text);
/* Answers 503, or 413 when the body exceeds the largest possible share of the budget. */
void conn_refuse_for_room(struct conn *c);
