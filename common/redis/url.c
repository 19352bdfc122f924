#include "common/redis/url.h"

#include <stdio.h>
#include <string.h>

#include "common/base/mem.h"

#define WANT                                                                                       \
    "the URL must have the form redis://HOST[:PORT][/DB] or unix:///PATH[?db=DB], with "           \
    "USER:PASSWORD and @ in front of HOST or PATH if there is a password"

enum { PORT = 6379, DB_MAX = 1 << 20, SOCKET_PATH_MAX = 107 };

static int hex(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* Decodes the %XX of `s` into `out`. Returns false when the text is too long, malformed, or
 * contains a zero byte. */
static bool decode(struct str s, char *out, size_t size)
{
    size_t n = 0;
    for (size_t i = 0; i < s.len; i++) {
        char c = s.ptr[i];
        if (c == '%') {
            int high = i + 2 < s.len ? hex(s.ptr[i + 1]) : -1;
            int low = i + 2 < s.len ? hex(s.ptr[i + 2]) : -1;
            if (high < 0 || low < 0)
                return false;
            c = (char)(high * 16 + low);
            i += 2;
        }
        if (c == '\0' || n + 1 >= size)
            return false;
        out[n++] = c;
    }
    out[n] = '\0';
    return true;
}

/* Splits `from` at the last occurrence of `mark` into *front and *rest. */
static bool cut_last(struct str from, char mark, struct str *front, struct str *rest)
{
    for (size_t i = from.len; i-- > 0;)
        if (from.ptr[i] == mark) {
            *front = (struct str){from.ptr, i};
            *rest = (struct str){from.ptr + i + 1, from.len - i - 1};
            return true;
        }
    return false;
}

static bool parse_number(struct str s, uint64_t max, uint64_t *out)
{
    return str_to_u64(s, out) == STATUS_OK && *out <= max;
}

/* Parses USER:PASSWORD, or a password alone after a colon. */
static bool parse_user(struct str s, struct redis_url *out)
{
    const char *colon = s.len ? memchr(s.ptr, ':', s.len) : NULL;
    if (!colon)
        return false;
    struct str user = {s.ptr, (size_t)(colon - s.ptr)};
    struct str password = {colon + 1, s.len - user.len - 1};
    return password.len > 0 && decode(user, out->user, sizeof out->user) &&
           decode(password, out->password, sizeof out->password);
}

static bool parse_unix(struct str s, struct redis_url *out)
{
    struct str path = s, query;
    uint64_t db = 0;
    if (cut_last(s, '?', &path, &query)) {
        if (!str_starts(query, STR("db=")) ||
            !parse_number((struct str){query.ptr + 3, query.len - 3}, DB_MAX, &db))
            return false;
    }
    out->is_unix = true;
    out->db = (uint32_t)db;
    return decode(path, out->host, sizeof out->host) && out->host[0] == '/' &&
           strlen(out->host) <= SOCKET_PATH_MAX;
}

static bool parse_host(struct str s, struct redis_url *out)
{
    struct str host = s, text;
    uint64_t db = 0, port = PORT;
    if (cut_last(s, '/', &host, &text) && text.len > 0 && !parse_number(text, DB_MAX, &db))
        return false;
    bool bracketed = host.len > 0 && host.ptr[0] == '[';
    struct str all = host;
    if (cut_last(all, ':', &host, &text) && !(bracketed && memchr(text.ptr, ']', text.len))) {
        if (!parse_number(text, 65535, &port) || port == 0)
            return false;
    } else {
        host = all;
    }
    if (bracketed) {
        if (host.len < 3 || host.ptr[host.len - 1] != ']')
            return false;
        host = (struct str){host.ptr + 1, host.len - 2};
    } else if (memchr(host.ptr, ':', host.len)) {
        return false; /* an IPv6 address must have brackets */
    }
    out->port = (uint16_t)port;
    out->db = (uint32_t)db;
    return host.len > 0 && decode(host, out->host, sizeof out->host);
}

enum status redis_url_parse(const char *url, struct redis_url *out, struct error *err)
{
    struct str s = str_from(url), user, rest;
    *out = (struct redis_url){0};
    bool is_unix = str_starts(s, STR("unix://")), is_tcp = str_starts(s, STR("redis://"));
    if (str_starts(s, STR("rediss://")))
        return error_set(err, STATUS_INVALID,
                         "Coxswain cannot use a Redis URL with rediss:// (TLS). Use a TLS tunnel "
                         "on this machine, or unix://");
    if (!is_unix && !is_tcp)
        return error_set(err, STATUS_INVALID, "the Redis URL has a wrong scheme: " WANT);
    size_t n = is_unix ? sizeof "unix://" - 1 : sizeof "redis://" - 1;
    s = (struct str){s.ptr + n, s.len - n};
    if (cut_last(s, '@', &user, &rest)) {
        if (!parse_user(user, out))
            return error_set(err, STATUS_INVALID,
                             "the Redis URL has a wrong user or password before @: " WANT);
        s = rest;
    }
    if (!(is_unix ? parse_unix(s, out) : parse_host(s, out)))
        return error_set(err, STATUS_INVALID,
                         "the Redis URL has a wrong host, port, path or db: " WANT);
    return STATUS_OK;
}
