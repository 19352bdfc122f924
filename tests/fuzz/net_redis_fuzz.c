/* Fuzzes the reader of Redis' answers, in arbitrary pieces (the first byte gives their size).
 * The replies must not depend on the pieces, and their size must be limited. The same bytes are
 * also read as a URL, which is parsed or refused. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/redis/reply.h"
#include "common/redis/url.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Reads every part of a reply, so that sanitizers check it. */
static uint64_t digest(const struct redis_reply *r, uint32_t depth)
{
    uint64_t h = (uint64_t)r->kind * 31 + (uint64_t)r->integer + depth;
    if (depth > 16 || r->text.len > REDIS_REPLY_MAX || r->n_items > REDIS_REPLY_MAX)
        abort();
    for (size_t i = 0; i < r->text.len; i++)
        h = h * 1099511628211u + (uint8_t)r->text.ptr[i];
    for (uint32_t i = 0; i < r->n_items; i++)
        h = h * 31 + digest(r->items[i], depth + 1);
    return h;
}

static enum redis_step parse(const uint8_t *data, size_t size, size_t piece, uint64_t *h)
{
    struct redis_parser *p = redis_parser_new(REDIS_REPLY_MAX);
    const struct redis_reply *reply;
    enum redis_step step = REDIS_MORE;
    *h = 0;
    for (size_t at = 0; at < size && step != REDIS_BROKEN; at += piece) {
        size_t n = size - at < piece ? size - at : piece;
        redis_parser_feed(p, (struct str){(const char *)data + at, n});
        while ((step = redis_parser_next(p, &reply)) == REDIS_REPLY)
            *h = *h * 31 + digest(reply, 0) + 1;
    }
    redis_parser_free(p);
    return step;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    size_t piece = 1 + data[0];
    uint64_t a, b;
    enum redis_step whole = parse(data + 1, size - 1, size, &a);
    enum redis_step cut = parse(data + 1, size - 1, piece, &b);
    if (whole != cut || a != b)
        abort();
    char *url = mem_alloc(size);
    struct redis_url u;
    struct error err = {0};
    memcpy(url, data + 1, size - 1);
    url[size - 1] = '\0';
    if (redis_url_parse(url, &u, &err) == STATUS_OK &&
        (!u.host[0] || (!u.is_unix && u.port == 0) || (u.user[0] && !u.password[0])))
        abort();
    mem_free(url);
    return 0;
}
