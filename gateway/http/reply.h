#pragma once
/* Answers through the HTTP server, where a reply is a struct http_request. */
#include "gateway/request/reply.h"

extern const struct reply_ops http_reply_ops;
