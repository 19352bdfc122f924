#pragma once
/* Parses answers of a Redis from RESP2, in the pieces in which they arrive, with hiredis's
 * reader. The reader bounds size and depth, and the memory of the parsed answer is bounded too. */
#include "common/base/str.h"

enum redis_kind { REDIS_NIL, REDIS_INTEGER, REDIS_TEXT, REDIS_ERROR, REDIS_LIST };

struct redis_reply { /* a reply is valid in the callback only, or until the next call */
    enum redis_kind kind;
    int64_t integer;
    struct str text; /* text of REDIS_TEXT and REDIS_ERROR */
    struct redis_reply **items;
    uint32_t n_items;
};

enum { REDIS_REPLY_MAX = 256 << 10 }; /* usual limit of an answer, in bytes */

struct redis_parser;
enum redis_step { REDIS_MORE, REDIS_REPLY, REDIS_BROKEN };

/* Makes a parser for answers of at most `max` bytes. The limit also applies to the values that are
 * made from an answer. */
struct redis_parser *redis_parser_new(uint32_t max);
void redis_parser_free(struct redis_parser *p); /* p may be NULL */
void redis_parser_feed(struct redis_parser *p, struct str bytes);
/* Sets *out to the next answer, valid until the next call. After REDIS_BROKEN the parser can
 * only be freed. */
enum redis_step redis_parser_next(struct redis_parser *p, const struct redis_reply **out);
