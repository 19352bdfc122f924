#pragma once
/* A Redis by its URL. Pure. */
#include "common/base/str.h"

/* The server's address, and who we are there. */
struct redis_url {
    char host[256]; /* or the socket's path */
    uint16_t port;
    bool is_unix;
    uint32_t db;
    char user[256], password[256]; /* "": none */
};
/* redis://[[USER]:PASSWORD@]HOST[:PORT][/DB] or unix://[[USER]:PASSWORD@]/PATH[?db=DB]; %XX in
 * user, password and path. STATUS_INVALID; no message repeats a password. */
MUST_USE enum status redis_url_parse(const char *url, struct redis_url *out, struct error *err);
