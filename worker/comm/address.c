#include "worker/comm/address.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

static enum status refuse(struct str text, struct error *err)
{
    return error_set(
        err, STATUS_INVALID,
        "\"%.*s\" is not a valid address of a rank: it must be a numeric HOST:PORT or [HOST]:PORT",
        (int)(text.len > COMM_ADDRESS_MAX ? COMM_ADDRESS_MAX : text.len), text.ptr);
}

/* Resolves a numeric host or a name. Takes the first address that the resolver returns. */
static int look_up(const char *host, const char *port, int flags, struct address *out)
{
    struct addrinfo *found = NULL, hints = {.ai_family = AF_UNSPEC,
                                            .ai_socktype = SOCK_STREAM,
                                            .ai_flags = flags | AI_NUMERICSERV};
    int rc = getaddrinfo(host, port, &hints, &found);
    if (rc != 0)
        return rc;
    memset(out, 0, sizeof *out);
    memcpy(&out->sa, found->ai_addr, found->ai_addrlen);
    out->n = found->ai_addrlen;
    freeaddrinfo(found);
    return 0;
}

enum status address_parse(struct str text, struct address *out, struct error *err)
{
    char host[COMM_ADDRESS_MAX], port[8];
    uint64_t number;
    memset(out, 0, sizeof *out);
    if (text.len == 0 || text.len >= COMM_ADDRESS_MAX || memchr(text.ptr, 0, text.len))
        return refuse(text, err);
    const char *colon = memrchr(text.ptr, ':', text.len);
    size_t n = colon ? (size_t)(colon - text.ptr) : 0;
    struct str h = {text.ptr, n}, p = {text.ptr + n + 1, colon ? text.len - n - 1 : 0};
    bool brackets = h.len >= 2 && h.ptr[0] == '[' && h.ptr[h.len - 1] == ']';
    if (brackets)
        h = (struct str){h.ptr + 1, h.len - 2};
    if (h.len == 0 || brackets != (memchr(h.ptr, ':', h.len) != NULL) || p.len > 5 ||
        str_to_u64(p, &number) != STATUS_OK || number == 0 || number > UINT16_MAX)
        return refuse(text, err);
    snprintf(host, sizeof host, STR_FMT, STR_ARG(h));
    snprintf(port, sizeof port, "%u", (unsigned)number);
    if (look_up(host, port, AI_NUMERICHOST, out) != 0)
        return refuse(text, err);
    return STATUS_OK;
}

static bool is_wildcard(const struct address *a)
{
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)&a->sa;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)&a->sa;
    if (a->sa.ss_family == AF_INET)
        return v4->sin_addr.s_addr == htonl(INADDR_ANY);
    if (a->sa.ss_family != AF_INET6)
        return false;
    const struct in6_addr *six = &v6->sin6_addr;
    uint32_t last;
    memcpy(&last, six->s6_addr + 12, sizeof last);
    /* ::ffff:0.0.0.0 is a wildcard too: all IPv4 addresses */
    return IN6_IS_ADDR_UNSPECIFIED(six) || (IN6_IS_ADDR_V4MAPPED(six) && last == 0);
}

enum status address_resolve(const char *host, uint16_t port, struct address *out, struct error *err)
{
    char name[NI_MAXHOST], number[8];
    size_t n = strlen(host);
    if (n == 0)
        return error_set(err, STATUS_INVALID,
                         "--comm-host is empty: set an address of this host, or remove the option");
    bool brackets = n > 2 && host[0] == '[' && host[n - 1] == ']';
    snprintf(name, sizeof name, "%.*s", (int)(brackets ? n - 2 : n), host + brackets);
    snprintf(number, sizeof number, "%u", port);
    int rc = look_up(name, number, 0, out);
    if (rc != 0)
        return error_set(err, STATUS_INVALID, "--comm-host %.200s is not usable: %s%s", host,
                         rc == EAI_SYSTEM ? strerror(errno) : gai_strerror(rc),
                         strchr(host, ':')
                             ? ". Give the address without a port (--comm-port sets the port)"
                             : "");
    if (is_wildcard(out))
        return error_set(err, STATUS_INVALID,
                         "--comm-host %.200s means all addresses, but the other ranks need one to "
                         "connect to: set one address of this host",
                         host);
    return STATUS_OK;
}

enum status address_format(const struct address *a, char out[COMM_ADDRESS_MAX], struct error *err)
{
    char host[NI_MAXHOST], port[NI_MAXSERV];
    int rc = getnameinfo((const struct sockaddr *)&a->sa, a->n, host, sizeof host, port,
                         sizeof port, NI_NUMERICHOST | NI_NUMERICSERV);
    out[0] = '\0';
    if (rc != 0)
        return error_set(err, STATUS_INVALID,
                         "cannot print the address on which this rank listens: %s",
                         gai_strerror(rc));
    int n = snprintf(out, COMM_ADDRESS_MAX, strchr(host, ':') ? "[%s]:%s" : "%s:%s", host, port);
    if (n < 0 || (size_t)n >= COMM_ADDRESS_MAX) {
        out[0] = '\0';
        return error_set(err, STATUS_INVALID,
                         "the address on which this rank listens has more than %u characters. Set "
                         "a shorter --comm-host",
                         COMM_ADDRESS_MAX - 1);
    }
    return STATUS_OK;
}
