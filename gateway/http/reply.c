#include "gateway/http/reply.h"

#include <stdio.h>

#include "common/http/server/answer.h"
#include "common/http/server/request.h"
#include "common/http/server/server.h"

static void reply_attach(void *reply, struct api_request *r)
{
    http_set_user(reply, r);
}

static void reply_respond(void *reply, int status, struct str json, uint32_t retry_after_s)
{
    char seconds[16];
    snprintf(seconds, sizeof seconds, "%u", retry_after_s);
    struct http_header_kv header = {"Retry-After", seconds};
    /* This header makes OpenAI's and Anthropic's clients not retry. The cluster has already
     * retried when that could help. With two more tries, a request that kills workers could kill
     * up to nine. */
    if (status == 500)
        http_add_header(reply, "x-should-retry", "false");
    http_respond(reply, status, "application/json", json, &header, retry_after_s ? 1 : 0);
}

static void reply_add_header(void *reply, const char *name, const char *value)
{
    http_add_header(reply, name, value);
}

static char *reply_take_body(void *reply)
{
    return http_take_body(reply);
}

static void reply_release_body(void *reply)
{
    http_release_body(reply);
}

static enum status reply_hold(void *reply, uint64_t bytes)
{
    return http_hold(reply, bytes);
}

static void reply_begin(void *reply, const char *content_type)
{
    /* without X-Accel-Buffering, nginx and its ingresses would delay the chunks */
    static const struct http_header_kv headers[] = {{"Cache-Control", "no-cache"},
                                                    {"X-Accel-Buffering", "no"}};
    http_stream_begin(reply, 200, content_type, headers, 2);
}

static size_t reply_room(void *reply)
{
    return http_stream_room(reply);
}

static void reply_write(void *reply, struct str chunk)
{
    http_stream_write(reply, chunk);
}

static void reply_end(void *reply)
{
    http_stream_end(reply);
}

static void reply_drop(void *reply, bool begun)
{
    http_drop(reply);
}

const struct reply_ops http_reply_ops = {
    .attach = reply_attach,
    .respond = reply_respond,
    .begin = reply_begin,
    .room = reply_room,
    .write = reply_write,
    .end = reply_end,
    .drop = reply_drop,
    .add_header = reply_add_header,
    .take_body = reply_take_body,
    .release_body = reply_release_body,
    .hold = reply_hold,
};
