#include "common/redis/reply.h"

#include <string.h>

#include <hiredis/hiredis.h>

#include "common/base/arena.h"
#include "common/base/mem.h"

#if HIREDIS_MAJOR >= 1
typedef size_t reader_count;
#else
typedef int reader_count;
#endif

enum { KEEP_BYTES = 4096 };

struct redis_parser {
    redisReader *reader;
    struct arena arena;
    uint32_t max; /* most bytes of an answer */
    bool broken;
};

/* ---- values that hiredis's reader makes; NULL stops it with an error ---- */

static struct redis_reply *make(const redisReadTask *t, enum redis_kind kind)
{
    struct redis_parser *p = t->privdata;
    struct redis_reply *r = arena_try_array(&p->arena, 1, sizeof *r), *parent;
    if (!r)
        return NULL;
    r->kind = kind;
    if (t->parent) {
        parent = t->parent->obj;
        parent->items[t->idx] = r;
    }
    return r;
}

static void *make_text(const redisReadTask *t, char *bytes, size_t n)
{
    struct redis_parser *p = t->privdata;
    if (t->type != REDIS_REPLY_STRING && t->type != REDIS_REPLY_STATUS &&
        t->type != REDIS_REPLY_ERROR)
        return NULL;
    struct redis_reply *r = make(t, t->type == REDIS_REPLY_ERROR ? REDIS_ERROR : REDIS_TEXT);
    char *copy = r ? arena_try_alloc(&p->arena, n + 1) : NULL;
    if (!copy)
        return NULL;
    if (n > 0)
        memcpy(copy, bytes, n);
    copy[n] = '\0';
    r->text = (struct str){copy, n};
    return r;
}

static void *make_list(const redisReadTask *t, reader_count n)
{
    struct redis_parser *p = t->privdata;
    if (t->type != REDIS_REPLY_ARRAY || (uint64_t)n > p->max)
        return NULL; /* the answer has a RESP3 type, which we did not request, or too many items */
    struct redis_reply *r = make(t, REDIS_LIST);
    if (!r)
        return NULL;
    r->n_items = (uint32_t)n;
    r->items = arena_try_array(&p->arena, r->n_items ? r->n_items : 1, sizeof(void *));
    return r->items ? r : NULL;
}

static void *make_integer(const redisReadTask *t, long long value)
{
    struct redis_reply *r = make(t, REDIS_INTEGER);
    if (r)
        r->integer = value;
    return r;
}

static void *make_nil(const redisReadTask *t)
{
    return make(t, REDIS_NIL);
}

static void forget(void *r)
{
    /* there is nothing to free, because the arena owns the object */
}

#if HIREDIS_MAJOR >= 1
static void *refuse_double(const redisReadTask *t, double value, char *text, size_t n)
{
    return NULL;
}

static void *refuse_bool(const redisReadTask *t, int value)
{
    return NULL;
}
#endif

static redisReplyObjectFunctions functions = {
    .createString = make_text,
    .createArray = make_list,
    .createInteger = make_integer,
    .createNil = make_nil,
    .freeObject = forget,
#if HIREDIS_MAJOR >= 1
    .createDouble = refuse_double,
    .createBool = refuse_bool,
#endif
};

/* ---- feeding ---- */

struct redis_parser *redis_parser_new(uint32_t max)
{
    struct redis_parser *p = mem_zalloc(sizeof *p);
    p->max = max;
    arena_init(&p->arena, max);
    p->reader = redisReaderCreateWithFunctions(&functions);
    p->broken = !p->reader;
    if (p->reader)
        p->reader->privdata = p;
    return p;
}

void redis_parser_free(struct redis_parser *p)
{
    if (!p)
        return;
    if (p->reader)
        redisReaderFree(p->reader);
    arena_fini(&p->arena);
    mem_free(p);
}

void redis_parser_feed(struct redis_parser *p, struct str bytes)
{
    if (!p->broken && bytes.len > 0 && redisReaderFeed(p->reader, bytes.ptr, bytes.len) != REDIS_OK)
        p->broken = true;
}

enum redis_step redis_parser_next(struct redis_parser *p, const struct redis_reply **out)
{
    void *reply = NULL;
    if (p->broken)
        return REDIS_BROKEN;
    if (!p->reader->reply)
        /* the trim is safe, because no partial answer is in the arena */
        arena_trim(&p->arena, KEEP_BYTES);
    if (redisReaderGetReply(p->reader, &reply) != REDIS_OK) {
        p->broken = true;
        return REDIS_BROKEN;
    }
    if (reply) {
        *out = reply;
        return REDIS_REPLY;
    }
    p->broken = p->reader->len - p->reader->pos > p->max;
    return p->broken ? REDIS_BROKEN : REDIS_MORE;
}
