#include "common/http/conn/address.h"

#include <netinet/in.h>
#include <string.h>

#include "common/collections/mix.h"
#include "common/http/conn/state.h"

/* Returns the number of an address. Addresses that one client may choose differ in few bits,
 * often the upper ones. So each bit of the result must depend on all bits of the address and of
 * the seed. */
uint64_t places_address(const struct sockaddr_storage *a, uint64_t seed)
{
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)a;
    uint64_t bits = 0;
    if (a->ss_family == AF_INET)
        bits = ((const struct sockaddr_in *)a)->sin_addr.s_addr;
    else if (IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr))
        memcpy(&bits, &v6->sin6_addr.s6_addr[12], 4);
    else
        memcpy(&bits, v6->sin6_addr.s6_addr, sizeof bits);
    return mix_bits(bits ^ seed) | 1;
}

static uint64_t number_of_address(struct conn *c)
{
    struct sockaddr_storage a = {0};
    int n = sizeof a;
    if (c->server->is_unix || uv_tcp_getpeername(&c->io.tcp, (struct sockaddr *)&a, &n) != 0)
        return 1;
    return places_address(&a, c->server->address_seed);
}

uint64_t conn_address(struct conn *c)
{
    if (!c->address)
        c->address = number_of_address(c);
    return c->address;
}

uint64_t conn_tenant(struct conn *c)
{
    return c->tenant ? c->tenant : conn_address(c);
}
