/* Decodes a request's body on a thread of libuv's pool, while the loop continues. The handler's
 * `look` at the body runs there too. As many bodies are decoded at once as the pool has threads (4,
 * or UV_THREADPOOL_SIZE). The limit on the size of a decoded body is the same as for a plain body.
 */
#include "common/http/conn/coding.h"

#include "common/base/mem.h"
#include "common/host/thread.h"
#include "common/http/conn/lifecycle.h"
#include "common/http/conn/refuse.h"
#include "common/http/message/content_coding.h"

struct coding_job {
    uv_work_t work;
    struct conn *conn; /* connection that stays alive with its parser until after_decode */
    struct content_codings codings; /* none = the body is only looked at */
    struct str body, decoded;
    uint64_t max;
    size_t (*look)(struct str body); /* NULL = nobody looks */
    size_t looked;
    enum content_verdict verdict;
    conn_decoded_fn *done;
};

static void decode(uv_work_t *w)
{
    static _Thread_local bool has_begun; /* true once this pool thread has its name and niceness */
    if (!has_begun)
        thread_begin("decode", THREAD_NICE_AWAITED);
    has_begun = true;
    struct coding_job *j = w->data;
    if (j->codings.n > 0)
        j->verdict = content_decode(&j->codings, j->body, j->max, &j->decoded);
    if (j->look && j->verdict == CONTENT_OK)
        j->looked = j->look(j->codings.n > 0 ? j->decoded : j->body);
}

static void refuse(struct conn *c, enum content_verdict v)
{
    if (v == CONTENT_TOO_LARGE)
        conn_refuse(c, 413,
                    "The request body is too large after it is decoded (Content-Encoding). Send a "
                    "smaller body");
    else if (v == CONTENT_NO_MEMORY)
        conn_refuse(c, 503, "The server has no memory to decode the request body. Try again later");
    else
        conn_refuse(c, 400,
                    "The request body does not match its Content-Encoding: it is cut off or "
                    "corrupt, or it needs a window of more than 8 MiB");
}

static void after_decode(uv_work_t *w, int rc)
{
    struct coding_job *j = w->data;
    struct conn *c = j->conn;
    c->decoding = NULL;
    c->looked = j->looked;
    if (rc == UV_ECANCELED)
        j->verdict = CONTENT_BROKEN; /* nothing was decoded, and the connection is closed */
    bool gone = c->state == CONN_CLOSING;
    if (j->verdict == CONTENT_OK && gone)
        mem_free((void *)j->decoded.ptr);
    else if (j->verdict == CONTENT_OK)
        j->done(c, j->decoded);
    else if (!gone)
        refuse(c, j->verdict);
    mem_free(j);
    conn_release(c);
}

bool conn_decode(struct conn *c, conn_decoded_fn *done)
{
    const struct http_message *m = http_parser_message(c->parser);
    const struct http_handlers *h = &c->server->handlers;
    struct content_codings codings = {0};
    if (h->unpacks && !h->unpacks(h->ctx, &c->request))
        /* the handler checks this first, because an unauthenticated client must learn nothing
         * about codings */
        return false;
    for (uint32_t i = 0; i < m->n_fields && m->body.len > 0; i++)
        if (http_field_is(&m->fields[i], "content-encoding") &&
            !content_codings_add(&codings, m->fields[i].value)) {
            conn_refuse(
                c, 415,
                "The Content-Encoding is not supported. Send the body without it, or use at most "
                "two of " CONTENT_CODINGS);
            return true;
        }
    const bool is_large = m->body.len > HTTP_SMALL_BODY_BYTES;
    if (codings.n == 0 && !(h->look && is_large))
        return false;
    struct coding_job *j = mem_zalloc(sizeof *j);
    *j = (struct coding_job){.work.data = j,
                             .conn = c,
                             .codings = codings,
                             .body = m->body,
                             .max = http_parser_max_body(c->parser),
                             .look = h->look,
                             .done = done};
    c->decoding = &j->work;
    c->open_handles++; /* the count keeps the connection until after_decode */
    (void)uv_queue_work(c->io.handle.loop, &j->work, decode, after_decode);
    return true;
}
