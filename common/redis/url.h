#pragma once
/* Parses the address of a Redis, which is written as a URL. The functions are pure and may run
 * on any thread. */
#include "common/base/str.h"

/* `redis_url` holds the server's address, and our user and password on that server. */
struct redis_url {
    char host[256]; /* name of the host, or path of the Unix socket */
    uint16_t port;
    bool is_unix;
    uint32_t db;
    char user[256], password[256]; /* user and password; "" = none */
};
/* Parses redis://[[USER]:PASSWORD@]HOST[:PORT][/DB] or unix://[[USER]:PASSWORD@]/PATH[?db=DB],
 * with %XX in user, password and path. Returns STATUS_INVALID for any other text. No error text
 * repeats a password. */
MUST_USE enum status redis_url_parse(const char *url, struct redis_url *out, struct error *err);
