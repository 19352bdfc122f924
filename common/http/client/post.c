/* Sends a blocking POST with plain sockets, for threads that export data. http_target_parse
 * checks the collector's URL once. http_post connects, sends the headers and the body, and reads
 * the status line.
 * Every wait is bounded by the call's timeout and ends within POLL_MS after `stop` is set. Only
 * the name lookup has no bound of ours. The connection is opened and closed within one call, so
 * there is no shared state. The answer's body is read only to let the server finish, and is then
 * dropped. */
#include "common/http/client/post.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/clock.h"

enum { POLL_MS = 100, STATUS_LINE_MAX = 256 };

/* ---- the address ---- */

static bool copy(char *out, size_t size, struct str s)
{
    if (s.len == 0 || s.len >= size)
        return false;
    memcpy(out, s.ptr, s.len);
    out[s.len] = '\0';
    return true;
}

/* Returns true when each byte may be in a request line. '@' (a user) and '#' (a fragment) are
 * not supported. */
static bool is_plain(struct str s)
{
    for (size_t i = 0; i < s.len; i++)
        if (s.ptr[i] <= ' ' || s.ptr[i] >= 0x7f || s.ptr[i] == '@' || s.ptr[i] == '#')
            return false;
    return true;
}

static bool read_authority(struct str a, struct http_target *out)
{
    const char *end = a.ptr + a.len, *at = a.ptr, *colon;
    uint64_t port = 80;
    bool bracket = a.len > 0 && *at == '[';
    const char *close = bracket ? memchr(at, ']', a.len) : NULL;
    if (bracket && !close)
        return false;
    struct str host = bracket ? (struct str){at + 1, (size_t)(close - at - 1)} : a;
    colon = bracket ? close + 1 : memchr(at, ':', a.len);
    if (!bracket && colon)
        host.len = (size_t)(colon - at);
    if (colon && colon < end &&
        (*colon != ':' ||
         str_to_u64((struct str){colon + 1, (size_t)(end - colon - 1)}, &port) != STATUS_OK))
        return false;
    if (port < 1 || port > 65535 || !copy(out->host, sizeof out->host, host))
        return false;
    snprintf(out->port, sizeof out->port, "%u", (unsigned)port);
    return true;
}

enum status http_target_parse(struct str url, const char *default_path, struct http_target *out,
                              struct error *err)
{
    struct str scheme = STR("http://");
    *out = (struct http_target){0};
    if (str_starts(url, STR("https://")))
        return error_set(
            err, STATUS_INVALID,
            "Coxswain cannot send data over https://. Run a collector on this machine that "
            "forwards the data, and give its address, such as http://127.0.0.1:4318");
    if (str_starts(url, STR("grpc://")))
        return error_set(err, STATUS_INVALID,
                         "Coxswain cannot send data over gRPC. Use the HTTP port of the collector, "
                         "usually 4318");
    if (!str_starts(url, scheme) || !is_plain(url))
        return error_set(err, STATUS_INVALID,
                         "the address must have the form http://HOST[:PORT][/PATH]");
    struct str rest = {url.ptr + scheme.len, url.len - scheme.len};
    const char *slash = memchr(rest.ptr, '/', rest.len);
    struct str authority = {rest.ptr, slash ? (size_t)(slash - rest.ptr) : rest.len};
    struct str path = {rest.ptr + authority.len, rest.len - authority.len};
    if (path.len <= 1)
        path = str_from(default_path);
    if (!read_authority(authority, out) || !copy(out->path, sizeof out->path, path))
        return error_set(err, STATUS_INVALID,
                         "the address must have the form http://HOST[:PORT][/PATH], with a port "
                         "from 1 to 65535 and a path of at most %zu bytes",
                         sizeof out->path - 1);
    return STATUS_OK;
}

/* ---- the call ---- */

struct call {
    const struct http_post *p;
    uint64_t end_ns;
    int fd;
};

/* Waits until `fd` is readable or writable. Returns STATUS_TIMEOUT when the time is over or
 * `stop` is set. */
static enum status wait_for(const struct call *c, short events)
{
    for (;;) {
        struct pollfd f = {.fd = c->fd, .events = events};
        if (clock_mono_ns() >= c->end_ns || (c->p->stop && atomic_load(c->p->stop)))
            return STATUS_TIMEOUT;
        int n = poll(&f, 1, POLL_MS);
        if (n > 0)
            return STATUS_OK;
        if (n < 0 && errno != EINTR)
            return STATUS_IO;
    }
}

static enum status connect_to(struct call *c, const struct addrinfo *a)
{
    int failure = 0;
    socklen_t size = sizeof failure;
    c->fd = socket(a->ai_family, a->ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, a->ai_protocol);
    if (c->fd < 0)
        return STATUS_IO;
    if (connect(c->fd, a->ai_addr, a->ai_addrlen) == 0)
        return STATUS_OK;
    if (errno != EINPROGRESS)
        return STATUS_IO;
    enum status s = wait_for(c, POLLOUT);
    if (s == STATUS_OK && getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &failure, &size) == 0 &&
        failure) {
        errno = failure;
        s = STATUS_IO;
    }
    return s;
}

static enum status open_connection(struct call *c)
{
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *all = NULL;
    enum status s = STATUS_IO;
    errno = EHOSTUNREACH;
    if (getaddrinfo(c->p->to->host, c->p->to->port, &hints, &all) != 0)
        return STATUS_IO;
    for (const struct addrinfo *a = all; a && s != STATUS_OK; a = a->ai_next) {
        if (c->fd >= 0)
            close(c->fd);
        c->fd = -1;
        s = connect_to(c, a);
    }
    freeaddrinfo(all);
    return s;
}

static enum status send_all(const struct call *c, struct str bytes)
{
    while (bytes.len > 0) {
        ssize_t n = send(c->fd, bytes.ptr, bytes.len, MSG_NOSIGNAL);
        if (n > 0) {
            bytes.ptr += n;
            bytes.len -= (size_t)n;
        } else if (n < 0 && errno != EAGAIN && errno != EINTR) {
            return STATUS_IO;
        } else {
            TRY(wait_for(c, POLLOUT));
        }
    }
    return STATUS_OK;
}

/* Reads the code of "HTTP/1.1 200 ...". */
static bool read_status_line(const char *line, int *status_code)
{
    int minor, code;
    if (sscanf(line, "HTTP/1.%1d %3d", &minor, &code) != 2 || code < 100)
        return false;
    *status_code = code;
    return true;
}

static enum status receive_status(const struct call *c, int *status_code)
{
    char line[STATUS_LINE_MAX + 1];
    size_t len = 0;
    while (len < STATUS_LINE_MAX) {
        TRY(wait_for(c, POLLIN));
        ssize_t n = recv(c->fd, line + len, STATUS_LINE_MAX - len, 0);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
            return STATUS_IO;
        len += n > 0 ? (size_t)n : 0;
        line[len] = '\0';
        if (strchr(line, '\n'))
            break;
    }
    errno = EPROTO;
    return read_status_line(line, status_code) ? STATUS_OK : STATUS_IO;
}

/* Reads the rest of a short answer, so that the server does not see a broken connection. */
static void drain(const struct call *c)
{
    char rest[4096];
    for (int i = 0; i < 16 && wait_for(c, POLLIN) == STATUS_OK; i++) {
        ssize_t n = recv(c->fd, rest, sizeof rest, 0);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
            return;
    }
}

static enum status exchange(struct call *c, int *status_code)
{
    const struct http_target *to = c->p->to;
    bool v6 = strchr(to->host, ':') != NULL;
    char head[2048];
    TRY(open_connection(c));
    int n = snprintf(head, sizeof head,
                     "POST %s HTTP/1.1\r\nHost: %s%s%s:%s\r\nContent-Type: %s\r\nContent-Length: "
                     "%zu\r\nConnection: close\r\n\r\n",
                     to->path, v6 ? "[" : "", to->host, v6 ? "]" : "", to->port, c->p->content_type,
                     c->p->body.len);
    TRY(send_all(c, (struct str){head, (size_t)n}));
    TRY(send_all(c, c->p->body));
    TRY(receive_status(c, status_code));
    drain(c);
    return STATUS_OK;
}

enum status http_post(const struct http_post *p, int *status_code, struct error *err)
{
    struct call c = {.p = p, .end_ns = clock_mono_ns() + p->timeout_ms * NS_PER_MS, .fd = -1};
    errno = 0;
    enum status s = exchange(&c, status_code);
    int why = errno;
    if (c.fd >= 0)
        close(c.fd);
    if (s == STATUS_OK)
        return s;
    errno = why;
    if (s == STATUS_TIMEOUT && p->stop && atomic_load(p->stop))
        return error_set(err, s,
                         "the request to http://%s:%s%s was stopped, because this process ends",
                         p->to->host, p->to->port, p->to->path);
    return s == STATUS_TIMEOUT ? error_set(err, s, "http://%s:%s%s did not answer within %u ms",
                                           p->to->host, p->to->port, p->to->path, p->timeout_ms)
                               : error_set(err, s, "the request to http://%s:%s%s failed: %m",
                                           p->to->host, p->to->port, p->to->path);
}
