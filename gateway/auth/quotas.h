#pragma once
/* Provides the store of leases.h: one Redis that all gateways reach (`--redis URL`). Redis has
 * these keys:
 *   {cox}:quota:1:ID:r  hash {level, at} of the requests bucket; at = microseconds of Redis's clock
 *   {cox}:quota:1:ID:t  the same hash for the tokens bucket
 *   {cox}:gateways      sorted set: a gateway's instance, by the second of its last report
 * ID is a hash of the key's digest, so the store holds no secret. A bucket that does not exist
 * is full. A bucket expires when it would be full. */
#include "common/base/metrics.h"
#include "common/loop/loop.h"
#include "gateway/auth/auth.h"

struct quotas;
/* Opens the store. Returns STATUS_INVALID when `url` is not a URL of a Redis. */
MUST_USE enum status quotas_new(struct loop *l, const char *url, struct metrics *m,
                                struct quotas **out, struct error *err);
/* frees the store; must not run inside a callback of the loop; `q` may be NULL */
void quotas_free(struct quotas *q);
/* shares the buckets of all keys in `a`; call it again after each change of the keys */
void quotas_share(struct quotas *q, struct auth *a);
