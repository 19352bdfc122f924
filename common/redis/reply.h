#pragma once
/* Answers of a Redis, read from RESP2 as it comes, in pieces, over hiredis's reader: bounded in
 * size, depth (by the reader) and in what it takes apart. */
#include "common/base/str.h"

enum redis_kind { REDIS_NIL, REDIS_INTEGER, REDIS_TEXT, REDIS_ERROR, REDIS_LIST };

struct redis_reply { /* valid in the callback only, or until the next call */
    enum redis_kind kind;
    int64_t integer;
    struct str text; /* of REDIS_TEXT and REDIS_ERROR */
    struct redis_reply **items;
    uint32_t n_items;
};

enum { REDIS_REPLY_MAX = 256 << 10 }; /* bytes of one answer, and of what is made of it */

struct redis_parser;
enum redis_step { REDIS_MORE, REDIS_REPLY, REDIS_BROKEN };

struct redis_parser *redis_parser_new(void);
void redis_parser_free(struct redis_parser *p); /* NULL is fine */
void redis_parser_feed(struct redis_parser *p, struct str bytes);
/* The next answer, valid until the next call; after REDIS_BROKEN it is of no use any more. */
enum redis_step redis_parser_next(struct redis_parser *p, const struct redis_reply **out);
