#pragma once
/* The chat page: files that are built into cox-gateway. `GET /` is the page itself, `GET
 * /chat/FILE` are its scripts and styles. They hold no data and need no key; the page asks for the
 * key, keeps it in its memory alone, and calls the same API as every other client. */
#include "common/base/str.h"

struct api_server;
struct call;

/* Whether `path` belongs to the page. With --no-chat-page, on SageMaker and at the admin address
 * such a path is one that nobody knows. */
bool chat_page_owns(struct str path);
void chat_page_get(struct api_server *a, const struct call *c);
