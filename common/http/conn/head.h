#pragma once
/* Writes the status line and the first headers of every answer. Only common/http includes this
 * header. */
#include "common/base/str.h"

struct conn;
/* Appends the status line, Date, Server, Content-Type (NULL = none) and Connection. */
void conn_append_head(struct conn *c, struct strbuf *b, int status, const char *content_type);
