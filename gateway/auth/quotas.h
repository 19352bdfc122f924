#pragma once
/* The store of leases.h: one Redis that all gateways reach (`--redis URL`). It has, below {cox},
 *
 *   {cox}:quota:1:ID:r and :t  hash: level, at (microseconds of Redis's clock); of requests, of
 * tokens {cox}:gateways             sorted set: a gateway's instance, the second in which it was
 * last here
 *
 * ID is a hash of the key's hash: no secret is there. Buckets are as fresh as new when they are not
 * there, and expire when they would be full anyway. */
#include "common/base/metrics.h"
#include "common/loop/loop.h"
#include "gateway/auth/auth.h"

struct quotas;
/* STATUS_INVALID: not a URL of a Redis. */
MUST_USE enum status quotas_new(struct loop *l, const char *url, struct metrics *m,
                                struct quotas **out, struct error *err);
void quotas_free(struct quotas *q); /* NULL is fine; not from a callback of the loop */
void quotas_share(struct quotas *q, struct auth *a); /* its keys, again after each change */
