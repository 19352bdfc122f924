#include "common/host/loopback.h"

#include <string.h>
#include <strings.h>

#include <arpa/inet.h>

bool host_is_loopback(struct str host)
{
    char text[INET6_ADDRSTRLEN];
    struct in_addr v4;
    struct in6_addr v6;
    bool brackets = host.len > 2 && host.ptr[0] == '[' && host.ptr[host.len - 1] == ']';
    if (brackets)
        host = (struct str){host.ptr + 1, host.len - 2};
    if (host.len == 0 || host.len >= sizeof text || memchr(host.ptr, '\0', host.len))
        return false;
    memcpy(text, host.ptr, host.len);
    text[host.len] = '\0';
    if (inet_pton(AF_INET6, text, &v6) == 1)
        return IN6_IS_ADDR_LOOPBACK(&v6);
    if (brackets)
        return false;
    if (inet_pton(AF_INET, text, &v4) == 1)
        return ntohl(v4.s_addr) >> 24 == 127;
    return strcasecmp(text, "localhost") == 0;
}

struct str authority_host(struct str authority)
{
    static const struct str none = {"", 0};
    bool brackets = authority.len > 0 && authority.ptr[0] == '[';
    const char *end = authority.ptr + authority.len;
    const char *stop = memchr(authority.ptr, brackets ? ']' : ':', authority.len);
    if (brackets && !stop)
        return none;
    stop = stop ? stop + brackets : end;
    if (stop < end && *stop != ':')
        return none;
    for (const char *p = end; stop < end && --p > stop;)
        if (*p < '0' || *p > '9')
            return none;
    return (struct str){authority.ptr, (size_t)(stop - authority.ptr)};
}
