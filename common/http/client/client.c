#include "common/http/client/client.h"

#include <stdatomic.h>

#include "common/base/mem.h"
#include "common/http/client/curl_call.h"

struct http_session {
    CURL *curl;
    CURLM *multi; /* keeps the connection; only its wait can be interrupted */
    atomic_bool is_interrupted;
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

/* Makes the transfer as curl_easy_perform does. Returns CURLE_ABORTED_BY_CALLBACK when it was
 * interrupted. */
static CURLcode perform(struct http_session *s)
{
    CURLcode rc = CURLE_ABORTED_BY_CALLBACK;
    int n_running = 1, n_left = 0;
    CURLMcode mrc = curl_multi_add_handle(s->multi, s->curl);
    while (mrc == CURLM_OK && n_running > 0 && !atomic_load(&s->is_interrupted)) {
        mrc = curl_multi_perform(s->multi, &n_running);
        if (mrc == CURLM_OK && n_running > 0)
            mrc = curl_multi_poll(s->multi, NULL, 0, 1000, NULL);
    }
    const CURLMsg *m = curl_multi_info_read(s->multi, &n_left);
    if (m)
        rc = m->data.result;
    else if (mrc != CURLM_OK)
        rc = CURLE_OUT_OF_MEMORY;
    curl_multi_remove_handle(s->multi, s->curl);
    return rc;
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
        CURLcode rc = c->session ? perform(c->session) : curl_easy_perform(curl);
        long code = 0;
        curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &code);
        *status_code = (int)code;
        if (rc == CURLE_ABORTED_BY_CALLBACK)
            s = error_set(err, STATUS_CLOSED, "the call was interrupted");
        else
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
    struct http_session *s = mem_zalloc(sizeof *s);
    s->curl = curl_easy_init();
    s->multi = curl_multi_init();
    if (s->curl && s->multi)
        return s;
    http_session_free(s);
    return NULL;
}

void http_session_interrupt(struct http_session *s, bool on)
{
    atomic_store(&s->is_interrupted, on);
    if (on)
        curl_multi_wakeup(s->multi);
}

void http_session_free(struct http_session *s)
{
    if (!s)
        return;
    curl_easy_cleanup(s->curl);
    curl_multi_cleanup(s->multi);
    mem_free(s);
}
