#include "common/http/handlers/files.h"

#include "common/http/server/answer.h"

const struct http_file *http_files_find(const struct http_file *files, size_t n, struct str path)
{
    for (size_t i = 0; i < n; i++)
        if (str_eq_c(path, files[i].path))
            return &files[i];
    return NULL;
}

/* Answers a request with a file. `frame-ancestors 'none'` prevents other pages from showing this
 * page in a frame and tricking users into clicks. `require-trusted-types-for` makes a script of
 * ours fail when it writes HTML. */
void http_files_answer(struct http_request *r, const struct http_file *f)
{
    static const struct http_header_kv headers[] = {
        {"Cache-Control", "no-cache"},
        {"Content-Security-Policy",
         "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src "
         "data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'; "
         "require-trusted-types-for 'script'"},
        {"Cross-Origin-Opener-Policy", "same-origin"},
        {"Cross-Origin-Resource-Policy", "same-origin"},
        {"Referrer-Policy", "no-referrer"},
        {"X-Content-Type-Options", "nosniff"}};
    http_respond(r, 200, f->type, (struct str){f->bytes, f->n_bytes}, headers,
                 sizeof headers / sizeof headers[0]);
}
