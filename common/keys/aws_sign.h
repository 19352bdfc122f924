#pragma once
/* Signs a GET without a body with Signature Version 4, for S3. We do not use libcurl's
 * signature. Its versions since 8.x encode paths and queries again, each in its own way. One URL
 * works with only some of them. In this module the signed bytes are exactly the bytes sent.
 * Specification: the S3 API reference, "Signature Calculations for the Authorization Header". */
#include "common/base/str.h"

struct aws_keys {
    /* key id, secret key, and session token; the token is NULL for permanent keys */
    const char *id, *secret, *session;
    const char *region;
};

#define AWS_DATE_BYTES 17 /* size of "20130524T000000Z" with its NUL */
#define AWS_EMPTY_SHA256                                                                           \
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" /* digest of an empty body  \
                                                                        */

/* Appends the value of the Authorization header to `out`. `host` has its port unless that is the
 * scheme's default. `path` and `query` are as sent: percent-encoded except letters, digits, -._~
 * (and / in the path), with the query's names in order, or "". The request must also send
 * x-amz-date (`date`), x-amz-content-sha256 (AWS_EMPTY_SHA256) and, with a session,
 * x-amz-security-token. */
void aws_sign(const struct aws_keys *keys, const char *host, const char *path, const char *query,
              const char date[AWS_DATE_BYTES], struct strbuf *out);
