#pragma once
/* Identifies the owner of a connection: its client's address and its request's tenant, as
 * numbers that are not 0. Only common/http includes this header. */
#include <stdint.h>

struct conn;
struct sockaddr_storage;
/* Returns a client's address as a number that is not 0. For IPv6 the number stands for the /64
 * network, because one client usually has all of that network. */
uint64_t places_address(const struct sockaddr_storage *a, uint64_t seed);
uint64_t conn_address(struct conn *c); /* returns the number of the client's address */
/* Returns the owner of the request's memory: its tenant, or the client's address when the
 * request has no tenant. */
uint64_t conn_tenant(struct conn *c);
