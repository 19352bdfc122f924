#pragma once
/* Error values. Every function that can fail returns enum status; on cold paths (load, config,
 * decode, connect) it also fills a struct error. The bottom layer writes the text once, with the
 * values; layers between add context in front (error_prefix) or pass it on; the top logs it once.
 * A text says what happened, where, and what to do next. STATUS_AGAIN is not an error. */
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

#define MUST_USE          __attribute__((warn_unused_result))
#define PRINTF_LIKE(f, a) __attribute__((format(printf, f, a)))

enum status {
    STATUS_OK = 0,
    STATUS_AGAIN,   /* not now: try again when something has moved */
    STATUS_INVALID, /* a caller's or user's value is wrong */
    STATUS_NOT_FOUND,
    STATUS_EXISTS,    /* already there: a port, a lock, an id */
    STATUS_NO_MEMORY, /* KV blocks, device memory, or a size asked for by a peer */
    STATUS_LIMIT,     /* a bound of ours was reached: queue, size, count */
    STATUS_IO,
    STATUS_PROTOCOL, /* the peer broke the protocol */
    STATUS_VERSION,  /* the peer speaks another major version */
    STATUS_DENIED,
    STATUS_TIMEOUT,
    STATUS_CLOSED,
    STATUS_UNSUPPORTED,
    STATUS_INTERNAL,
    STATUS_COUNT
};

struct error {
    enum status status;
    char text[512];
};

const char *status_name(enum status s);
/* A program that could not start was given something wrong: it ends with exit code 2, so that
 * nobody starts it again and again. */
bool status_is_configuration(enum status s);

/* Fills err (may be NULL) and returns s, so that `return error_set(err, STATUS_IO, ...)` reads
 * well. */
enum status error_set(struct error *err, enum status s, const char *fmt, ...) PRINTF_LIKE(3, 4);
/* Puts "prefix: " in front of the text and returns err->status. err may be NULL: returns s. */
enum status error_prefix(struct error *err, enum status s, const char *fmt, ...) PRINTF_LIKE(3, 4);

#define TRY(expr)                                                                                  \
    do {                                                                                           \
        enum status try_status_ = (expr);                                                          \
        if (try_status_ != STATUS_OK)                                                              \
            return try_status_;                                                                    \
    } while (0)
