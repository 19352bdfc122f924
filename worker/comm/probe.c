#include "worker/comm/probe.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "worker/comm/address.h"

static int connect_error(int fd, const struct address *a, uint32_t timeout_ms)
{
    int e = 0;
    socklen_t n = sizeof e;
    if (connect(fd, (const struct sockaddr *)&a->sa, a->n) == 0)
        return 0;
    if (errno != EINPROGRESS)
        return errno;
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    if (poll(&p, 1, (int)timeout_ms) <= 0)
        return 0;
    return getsockopt(fd, SOL_SOCKET, SO_ERROR, &e, &n) == 0 ? e : errno;
}

enum status comm_probe(struct str address, uint32_t timeout_ms, struct error *err)
{
    struct address a;
    TRY(address_parse(address, &a, err));
    int fd = socket(a.sa.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return error_set(err, STATUS_LIMIT, "cannot create a socket: %s", strerror(errno));
    int e = connect_error(fd, &a, timeout_ms);
    close(fd);
    if (e == ECONNREFUSED || e == EHOSTUNREACH || e == ENETUNREACH)
        return error_set(err, STATUS_IO,
                         "the other rank has ended: no process listens at its address any more: %s",
                         strerror(e));
    return STATUS_OK;
}
