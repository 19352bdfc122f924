#pragma once
/* The keys that sign requests to S3, looked for in the order of AWS's SDKs: the environment; a web
 * identity (IRSA); the profile's keys in ~/.aws/credentials, then in ~/.aws/config; a container's
 * role (ECS, EKS pod identity); the instance's role. What is found first is meant: when it fails it
 * is an error. Nothing found: requests go unsigned, as of public buckets. Keys that end are fetched
 * again before they do. aws_credentials_keys may be called by several threads. */
#include "cli/pull/request/retry.h"
#include "common/keys/aws_sign.h"

struct aws_setup {
    const struct fetch_net *net;
    const char *(*env)(const char *name);       /* getenv, or a test's */
    const char *id, *secret, *session, *region; /* of flags and environment; NULL or "" likewise */
    const char *endpoint;                       /* of S3; NULL: the profile's, or AWS's */
};

struct aws_credentials;
/* Finds them; *out is NULL when there are none, and is set with a failure, too. *region and
 * *endpoint are for mem_free; endpoint NULL: AWS's own. */
MUST_USE enum status aws_credentials_open(const struct aws_setup *setup,
                                          struct aws_credentials **out, char **region,
                                          char **endpoint, struct error *err);
/* Good for a request that begins now; what *out points to lives as long as c. */
MUST_USE enum status aws_credentials_keys(struct aws_credentials *c, struct aws_keys *out,
                                          struct error *err);
const char *aws_credentials_source(const struct aws_credentials *c); /* "of the instance's role" */
/* The end of the host names of a region's services: China's are a partition of their own. */
const char *aws_domain(const char *region);
void aws_credentials_close(struct aws_credentials *c);
