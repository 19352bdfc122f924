#include "common/http/conn/refuse.h"

#include <stdio.h>

#include "common/http/conn/charge.h"
#include "common/http/conn/head.h"
#include "common/http/conn/lifecycle.h"
#include "common/http/conn/output.h"
#include "common/http/message/content_coding.h"

/* Returns the error type, as in vLLM and in the gateway's own answers
 * (gateway/base/api_error.c). */
static const char *error_type(int status)
{
    return status < 500    ? "BadRequestError"
           : status == 501 ? "NotImplementedError"
           : status == 503 ? "ServiceUnavailableError"
                           : "InternalServerError";
}

void conn_refuse(struct conn *c, int status, const char *text)
{
    struct strbuf body, head;
    strbuf_init(&body, 0);
    strbuf_init(&head, 0);
    strbuf_append_c(&body, "{\"error\":{\"message\":");
    strbuf_append_json(&body, str_from(text));
    strbuf_printf(&body, ",\"type\":\"%s\",\"param\":null,\"code\":%d}}", error_type(status),
                  status);
    c->keep_alive = false;
    conn_append_head(c, &head, status, "application/json");
    if (status == 503)
        strbuf_append_c(&head, "Retry-After: 1\r\n");
    if (status == 415)
        strbuf_append_c(&head, "Accept-Encoding: " CONTENT_CODINGS "\r\n");
    strbuf_printf(&head, "Content-Length: %zu\r\n\r\n", body.len);
    conn_send(c, strbuf_str(&head), strbuf_str(&body), STR(""));
    strbuf_fini(&body);
    strbuf_fini(&head);
    conn_linger(c);
    if (c->tls)
        conn_tls_goodbye(c);
}

void conn_refuse_for_room(struct conn *c)
{
    const uint64_t wanted = conn_body_bytes(c, http_parser_announced(c->parser));
    const uint64_t most = room_most(&c->server->bodies);
    char text[200];
    c->server->counts.refused_bodies++;
    if (wanted <= most) {
        conn_refuse(
            c, 503,
            "The server cannot accept this request now: the requests that it holds, yours or those "
            "of all clients, use all the memory for requests. Try again in a moment");
        return;
    }
    snprintf(text, sizeof text,
             "The request body is too large: it needs %llu bytes of memory, decoded form included, "
             "but the limit for one client is %llu bytes",
             (unsigned long long)wanted, (unsigned long long)most);
    conn_refuse(c, 413, text);
}
