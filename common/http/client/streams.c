#include "common/http/client/streams.h"

#include <string.h>

#include "common/base/mem.h"
#include "common/http/client/curl_call.h"

struct stream {
    struct http_call call;
    http_streams_end_fn *on_end;
    CURL *curl;
    struct curl_slist *headers;
    struct stream *prev, *next;
};

struct http_streams {
    CURLM *multi;
    struct stream *first;
};

enum status http_streams_new(struct http_streams **out, struct error *err)
{
    struct http_streams *s = mem_zalloc(sizeof *s);
    s->multi = curl_multi_init();
    if (!s->multi) {
        mem_free(s);
        return error_set(err, STATUS_INTERNAL,
                         "cannot send requests: there is not enough memory for libcurl");
    }
    *out = s;
    return STATUS_OK;
}

static size_t on_body(char *data, size_t size, size_t n, void *ctx)
{
    const struct stream *t = ctx;
    struct str piece = {data, size * n};
    /* curl ends the transfer when the callback returns 0 */
    return t->call.on_data(t->call.ctx, piece) ? piece.len : 0;
}

/* Removes the stream from the list and frees everything but the struct. */
static void take_out(struct http_streams *s, struct stream *t)
{
    *(t->prev ? &t->prev->next : &s->first) = t->next;
    if (t->next)
        t->next->prev = t->prev;
    curl_multi_remove_handle(s->multi, t->curl);
    curl_easy_cleanup(t->curl);
    curl_slist_free_all(t->headers);
}

static void end(struct http_streams *s, struct stream *t, enum status status,
                const struct error *err)
{
    long code = 0;
    curl_easy_getinfo(t->curl, CURLINFO_RESPONSE_CODE, &code);
    take_out(s, t);
    t->on_end(t->call.ctx, status, (int)code, err);
    mem_free(t);
}

enum status http_streams_begin(struct http_streams *s, const struct http_call *c,
                               http_streams_end_fn *on_end, struct error *err)
{
    struct stream *t = mem_zalloc(sizeof *t);
    t->call = *c;
    t->on_end = on_end;
    t->curl = curl_easy_init();
    enum status status =
        t->curl ? http_client_prepare(t->curl, &t->call, &t->headers, err)
                : error_set(err, STATUS_INTERNAL,
                            "cannot send the request: there is not enough memory for libcurl");
    if (status == STATUS_OK) {
        curl_easy_setopt(t->curl, CURLOPT_WRITEFUNCTION, on_body);
        curl_easy_setopt(t->curl, CURLOPT_WRITEDATA, t);
        curl_easy_setopt(t->curl, CURLOPT_PRIVATE, t);
        CURLMcode rc = curl_multi_add_handle(s->multi, t->curl);
        if (rc != CURLM_OK)
            status = error_set(err, STATUS_INTERNAL, "the request to %.*s cannot start: %s",
                               (int)strcspn(c->url, "?#"), c->url, curl_multi_strerror(rc));
    }
    if (status != STATUS_OK) {
        curl_easy_cleanup(t->curl);
        curl_slist_free_all(t->headers);
        mem_free(t);
        return status;
    }
    t->next = s->first;
    if (s->first)
        s->first->prev = t;
    s->first = t;
    return STATUS_OK;
}

void http_streams_turn(struct http_streams *s, uint32_t timeout_ms)
{
    int n_running = 0, n_left = 0;
    /* curl_multi_perform sends new requests before the wait */
    (void)curl_multi_perform(s->multi, &n_running);
    if (timeout_ms > 0)
        (void)curl_multi_poll(s->multi, NULL, 0, (int)timeout_ms, NULL);
    (void)curl_multi_perform(s->multi, &n_running);
    for (const CURLMsg *m; (m = curl_multi_info_read(s->multi, &n_left));) {
        struct stream *t = NULL;
        struct error err = {0};
        CURLcode rc = m->data.result;
        curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &t);
        end(s, t, rc == CURLE_OK ? STATUS_OK : http_client_describe(rc, &t->call, &err), &err);
    }
}

void http_streams_abort(struct http_streams *s)
{
    struct error err = {0};
    (void)error_set(&err, STATUS_CLOSED, "interrupted");
    while (s->first)
        end(s, s->first, STATUS_CLOSED, &err);
}

void http_streams_free(struct http_streams *s)
{
    if (!s)
        return;
    http_streams_abort(s);
    curl_multi_cleanup(s->multi);
    mem_free(s);
}
