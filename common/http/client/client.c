#include "common/http/client/client.h"

#include "common/base/mem.h"
#include "common/http/client/curl_call.h"

struct http_session {
    CURL *curl;
};

struct sink {
    const struct http_call *call;
    struct strbuf *answer;
};

static size_t on_body(char *data, size_t size, size_t n, void *ctx)
{
    struct sink *s = ctx;
    struct str piece = {data, size * n};
    bool ok = s->call->on_data ? s->call->on_data(s->call->ctx, piece)
                               : strbuf_append_str(s->answer, piece);
    /* curl ends the transfer when the callback returns any number but the length */
    return ok ? piece.len : 0;
}

enum status http_client_call(const struct http_call *c, int *status_code, struct strbuf *answer,
                             struct error *err)
{
    struct curl_slist *headers = NULL;
    *status_code = 0;
    CURL *curl = c->session ? c->session->curl : curl_easy_init();
    if (!curl)
        return error_set(err, STATUS_INTERNAL,
                         "cannot send the request: there is not enough memory for libcurl");
    struct sink sink = {c, answer};
    enum status s = http_client_prepare(curl, c, &headers, err);
    if (s == STATUS_OK) {
        curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_body);
        curl_easy_setopt(curl, CURLOPT_WRITEDATA, &sink);
        CURLcode rc = curl_easy_perform(curl);
        long code = 0;
        curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &code);
        *status_code = (int)code;
        s = rc == CURLE_OK ? STATUS_OK : http_client_describe(rc, c, err);
    }
    curl_slist_free_all(headers);
    if (c->session)
        curl_easy_reset(curl); /* keeps the connection */
    else
        curl_easy_cleanup(curl);
    return s;
}

struct http_session *http_session_new(void)
{
    CURL *curl = curl_easy_init();
    if (!curl)
        return NULL;
    struct http_session *s = mem_zalloc(sizeof *s);
    s->curl = curl;
    return s;
}

void http_session_free(struct http_session *s)
{
    if (!s)
        return;
    curl_easy_cleanup(s->curl);
    mem_free(s);
}
