#pragma once
/* Owner of a connection: its client's address and its request's tenant, as numbers that are not
 * 0. Private to common/http. */
#include <stdint.h>

struct conn;
struct sockaddr_storage;
/* Returns a client's address as a number that is not 0. For IPv6 it is the /64 network, because
 * one client usually has all of it. */
uint64_t places_address(const struct sockaddr_storage *a, uint64_t seed);
uint64_t conn_address(struct conn *c); /* number of the client's address */
/* Returns the owner of the request's memory: its tenant, or its client's address without one. */
uint64_t conn_tenant(struct conn *c);
