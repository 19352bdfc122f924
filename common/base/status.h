#pragma once
/* Defines the error values. Every function that can fail returns enum status. On cold paths
 * (load, config, decoding of messages, connect) it also fills a struct error. The bottom layer
 * writes the text once, with the values. Layers between add context in front (error_prefix) or
 * pass the error on, and the top layer logs it once. A text says what happened, where, and what
 * to do next. STATUS_AGAIN is not an error. */
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

#define MUST_USE          __attribute__((warn_unused_result))
#define PRINTF_LIKE(f, a) __attribute__((format(printf, f, a)))

enum status {
    STATUS_OK = 0,
    STATUS_AGAIN,   /* the operation is not possible now; try again later */
    STATUS_INVALID, /* a value from the caller or the user is wrong */
    STATUS_NOT_FOUND,
    STATUS_EXISTS, /* the thing already exists: a port in use, a lock, an id */
    /* there are not enough KV blocks or device memory, or a peer requested too much */
    STATUS_NO_MEMORY,
    STATUS_LIMIT, /* one of our own bounds was reached: queue, size, count */
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
/* Returns true when `s` means that a program could not start because its configuration is wrong.
 * The program then exits with code 2, so that its supervisor does not restart it again and
 * again. */
bool status_is_configuration(enum status s);

/* Fills err (may be NULL) and returns `s`, for use as `return error_set(err, STATUS_IO, ...)`. */
enum status error_set(struct error *err, enum status s, const char *fmt, ...) PRINTF_LIKE(3, 4);
/* Puts "prefix: " in front of the error's text and returns err->status. Returns `s` when err is
 * NULL. */
enum status error_prefix(struct error *err, enum status s, const char *fmt, ...) PRINTF_LIKE(3, 4);

#define TRY(expr)                                                                                  \
    do {                                                                                           \
        enum status try_status_ = (expr);                                                          \
        if (try_status_ != STATUS_OK)                                                              \
            return try_status_;                                                                    \
    } while (0)
