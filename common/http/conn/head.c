#include "common/http/conn/head.h"

#include <time.h>

#include "common/base/clock.h"
#include "common/http/conn/state.h"

static const char *status_text(int status)
{
    static const struct {
        int status;
        const char *text;
    } texts[] = {
        {200, "OK"},
        {201, "Created"},
        {202, "Accepted"},
        {204, "No Content"},
        {301, "Moved Permanently"},
        {302, "Found"},
        {304, "Not Modified"},
        {400, "Bad Request"},
        {401, "Unauthorized"},
        {403, "Forbidden"},
        {404, "Not Found"},
        {405, "Method Not Allowed"},
        {408, "Request Timeout"},
        {409, "Conflict"},
        {413, "Content Too Large"},
        {414, "URI Too Long"},
        {415, "Unsupported Media Type"},
        {417, "Expectation Failed"},
        {422, "Unprocessable Content"},
        {424, "Failed Dependency"},
        {429, "Too Many Requests"},
        {431, "Request Header Fields Too Large"},
        {499, "Client Closed Request"},
        {500, "Internal Server Error"},
        {501, "Not Implemented"},
        {503, "Service Unavailable"},
        {504, "Gateway Timeout"},
        {507, "Insufficient Storage"},
        {505, "HTTP Version Not Supported"},
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (texts[i].status == status)
            return texts[i].text;
    return status < 400 ? "OK" : "Error";
}

static void append_date(struct strbuf *b)
{
    static _Thread_local time_t last;
    static _Thread_local char text[40];
    time_t now = (time_t)(clock_wall_ns() / NS_PER_S);
    if (now != last) {
        struct tm tm;
        gmtime_r(&now, &tm);
        strftime(text, sizeof text, "%a, %d %b %Y %H:%M:%S GMT", &tm);
        last = now;
    }
    strbuf_printf(b, "Date: %s\r\n", text);
}

void conn_append_head(struct conn *c, struct strbuf *b, int status, const char *content_type)
{
    strbuf_printf(b, "HTTP/1.1 %d %s\r\n", status, status_text(status));
    append_date(b);
    if (c->server->name[0])
        strbuf_printf(b, "Server: %s\r\n", c->server->name);
    if (content_type)
        strbuf_printf(b, "Content-Type: %s\r\n", content_type);
    if (!c->keep_alive)
        strbuf_append_c(b, "Connection: close\r\n");
    else if (http_parser_message(c->parser)->is_http10)
        strbuf_append_c(b, "Connection: keep-alive\r\n");
}
