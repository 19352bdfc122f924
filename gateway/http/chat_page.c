#include "gateway/http/chat_page.h"

#include "common/http/handlers/files.h"
#include "gateway/http/state.h"

extern const struct http_file chat_page_files[];
extern const size_t n_chat_page_files;

bool chat_page_owns(struct str path)
{
    return str_eq_c(path, "/") || str_starts(path, STR("/chat/"));
}

void chat_page_get(struct gateway *g, struct http_request *r, const struct route *row,
                   uint64_t tenant)
{
    const struct http_file *f = http_files_find(chat_page_files, n_chat_page_files, http_path(r));
    struct api_error e = {0};
    if (f) {
        http_files_answer(r, f);
        return;
    }
    api_error_set(&e, 404, NULL, "Not Found");
    reply_error(&gateway_reply_ops, r, NULL, &e);
}
