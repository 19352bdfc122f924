#pragma once
/* Serves the chat page from files that are built into cox-gateway. `GET /` is the page itself,
 * and `GET /chat/FILE` gives its scripts and styles. They contain no data and need no key. The
 * page asks for the key, keeps it in its memory only, and calls the same API as all clients. */
#include "common/base/str.h"

struct api_server;
struct call;

/* Returns true when `path` belongs to the page. With --no-chat-page, on SageMaker and at the
 * admin address such a path is unknown. */
bool chat_page_owns(struct str path);
void chat_page_get(struct api_server *a, const struct call *c);
