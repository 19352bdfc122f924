#pragma once
/* The owner of a connection: its client's address and its request's tenant, as numbers that are not
 * 0. Private to common/http. */
#include <stdint.h>

struct conn;
struct sockaddr_storage;
/* A client's address as a number that is not 0: of IPv6 the network, of which a client has all. */
uint64_t places_address(const struct sockaddr_storage *a, uint64_t seed);
uint64_t conn_address(struct conn *c); /* of its client */
/* The request's room counts for its tenant, or else for its client. */
uint64_t conn_tenant(struct conn *c);
