#pragma once
/* Finds the keys that sign requests to S3, in the order of AWS's SDKs:
 * - the environment
 * - a web identity (IRSA)
 * - the profile's keys in ~/.aws/credentials, then in ~/.aws/config
 * - a container's role (ECS, EKS pod identity)
 * - the instance's role The first configured source is used, and its failure is an error. When no
 * source is configured, requests are not signed, as for public buckets. Temporary keys are renewed
 * before they expire. Several threads may call aws_credentials_keys. */
#include "cli/pull/request/retry.h"
#include "common/keys/aws_sign.h"

struct aws_setup {
    const struct fetch_net *net;
    const char *(*env)(const char *name); /* getenv, or a test's function */
    /* keys and region from flags and environment; NULL or "" = not given */
    const char *id, *secret, *session, *region;
    const char *endpoint; /* endpoint of S3; NULL = the profile's endpoint, or else AWS's */
};

struct aws_credentials;
/* Finds the keys. *out is NULL when there are no keys; it is also set after a failure. The
 * caller frees *region and *endpoint with `mem_free`. *endpoint NULL means AWS's own endpoint. */
MUST_USE enum status aws_credentials_open(const struct aws_setup *setup,
                                          struct aws_credentials **out, char **region,
                                          char **endpoint, struct error *err);
/* Returns keys that are valid for a request that begins now. The strings in *out live as long as
 * `c`. */
MUST_USE enum status aws_credentials_keys(struct aws_credentials *c, struct aws_keys *out,
                                          struct error *err);
/* Returns a phrase that describes the source of the keys, such as "of the instance's role". */
const char *aws_credentials_source(const struct aws_credentials *c);
/* Returns the domain of AWS's host names in a region. The regions in China have a different
 * domain. */
const char *aws_domain(const char *region);
void aws_credentials_close(struct aws_credentials *c);
