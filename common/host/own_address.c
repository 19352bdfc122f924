#include "common/host/own_address.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Splits "HOST:PORT" into the name without brackets and the port. */
static bool split(const char *to, char name[256], const char **port)
{
    const char *colon = strrchr(to, ':');
    if (!colon || !colon[1])
        return false;
    size_t n = (size_t)(colon - to);
    if (n > 2 && to[0] == '[' && to[n - 1] == ']') {
        to++;
        n -= 2;
    }
    if (n == 0 || n > 255)
        return false;
    memcpy(name, to, n);
    name[n] = '\0';
    *port = colon + 1;
    return true;
}

/* Finds the source address for `a`. Connecting a datagram socket makes the kernel choose the
 * address and sends nothing. Returns 0 or an errno. */
static int ask(const struct addrinfo *a, char out[OWN_ADDRESS_MAX])
{
    struct sockaddr_storage own;
    socklen_t n = sizeof own;
    int fd = socket(a->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return errno;
    int e = connect(fd, a->ai_addr, a->ai_addrlen) != 0 ||
                    getsockname(fd, (struct sockaddr *)&own, &n) != 0
                ? errno
                : 0;
    close(fd);
    if (e == 0 &&
        getnameinfo((struct sockaddr *)&own, n, out, OWN_ADDRESS_MAX, NULL, 0, NI_NUMERICHOST) != 0)
        e = EAFNOSUPPORT;
    return e;
}

enum status own_address_for(const char *to, char out[OWN_ADDRESS_MAX], struct error *err)
{
    char name[256];
    const char *port;
    out[0] = '\0';
    if (!split(to, name, &port))
        return error_set(err, STATUS_INVALID, "\"%s\" is not an address of the form HOST:PORT", to);
    const struct addrinfo hints = {
        .ai_family = AF_UNSPEC, .ai_socktype = SOCK_DGRAM, .ai_flags = AI_NUMERICSERV};
    struct addrinfo *list = NULL;
    int rc = getaddrinfo(name, port, &hints, &list);
    if (rc == EAI_SERVICE || (rc == EAI_NONAME && strspn(port, "0123456789") != strlen(port)))
        return error_set(
            err, STATUS_INVALID,
            "\"%s\" is not an address of the form HOST:PORT: the port must be a number", to);
    if (rc != 0)
        return error_set(err, STATUS_IO, "cannot resolve the host name %s: %s", name,
                         gai_strerror(rc));
    int e = EADDRNOTAVAIL;
    for (const struct addrinfo *a = list; a && e != 0; a = a->ai_next)
        e = ask(a, out);
    freeaddrinfo(list);
    if (e != 0)
        return error_set(err, STATUS_IO, "this machine has no network route to %s: %s", to,
                         strerror(e));
    return STATUS_OK;
}
