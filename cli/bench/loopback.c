#include "cli/bench/loopback.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/str.h"

/* Splits "scheme://[user@]host[:port][/path]" into host and port. Returns false when the URL has
 * no host. */
static bool split(const char *url, char host[256], char port[8])
{
    const char *at = strstr(url, "://");
    if (!at)
        return false;
    bool is_https = at - url == 5;
    at += 3;
    size_t n = strcspn(at, "/?#");
    const char *user = memrchr(at, '@', n);
    if (user) {
        n -= (size_t)(user + 1 - at);
        at = user + 1;
    }
    const char *close_bracket = *at == '[' ? memchr(at, ']', n) : NULL;
    const char *name = close_bracket ? at + 1 : at;
    size_t n_name = close_bracket ? (size_t)(close_bracket - name) : strcspn(at, ":/?#");
    const char *rest = name + n_name + (close_bracket != NULL);
    size_t n_rest = (size_t)(at + n - rest);
    if (n_name == 0 || n_name > n || n_name > 255 || n_rest > 6)
        return false;
    snprintf(host, 256, "%.*s", (int)n_name, name);
    snprintf(port, 8, "%.*s", (int)(n_rest > 1 ? n_rest - 1 : 3),
             n_rest > 1 ? rest + 1
             : is_https ? "443"
                        : "80\0");
    return true;
}

static bool is_loopback(const struct sockaddr *a)
{
    if (a->sa_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)(const void *)a)->sin_addr.s_addr) >> 24 == 127;
    return a->sa_family == AF_INET6 &&
           IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)(const void *)a)->sin6_addr);
}

static bool refuses(const struct addrinfo *a)
{
    int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        /* a server cannot listen on an address family that this machine does not have */
        return errno == EAFNOSUPPORT;
    int rc = connect(fd, a->ai_addr, a->ai_addrlen);
    bool is = rc != 0 && (errno == ECONNREFUSED || errno == EADDRNOTAVAIL);
    (void)close(fd);
    return is;
}

bool bench_is_closed_here(const char *url)
{
    char host[256], port[8];
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *list = NULL;
    if (!split(url, host, port) || getaddrinfo(host, port, &hints, &list) != 0)
        return false;
    bool is = list != NULL;
    for (const struct addrinfo *a = list; a && is; a = a->ai_next)
        is = is_loopback(a->ai_addr) && refuses(a);
    freeaddrinfo(list);
    return is;
}
