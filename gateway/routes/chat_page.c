#include "gateway/routes/chat_page.h"

#include "common/http/handlers/files.h"
#include "common/http/server/request.h"
#include "common/http/server/server.h"
#include "gateway/http/reply.h"
#include "gateway/routes/route.h"

extern const struct http_file chat_page_files[];
extern const size_t n_chat_page_files;

bool chat_page_owns(struct str path)
{
    return str_eq_c(path, "/") || str_starts(path, STR("/chat/"));
}

void chat_page_get(struct api_server *a, const struct call *c)
{
    const struct http_file *f =
        http_files_find(chat_page_files, n_chat_page_files, http_path(c->request));
    struct api_error e = {0};
    if (f) {
        http_files_answer(c->request, f);
        return;
    }
    api_error_set(&e, 404, NULL, "Not Found");
    reply_error(&http_reply_ops, c->request, NULL, &e);
}
