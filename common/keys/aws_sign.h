#pragma once
/* Signature Version 4 of a GET without a body, for S3. libcurl has one, too: its versions since 8.x
 * encode paths and queries once more, each in its own way, so that one URL is right for one of them
 * alone. Here what is signed is what is sent. Specification: the S3 API reference, "Signature
 * Calculations for the Authorization Header". */
#include "common/base/str.h"

struct aws_keys {
    const char *id, *secret, *session; /* session: NULL for keys that stay */
    const char *region;
};

#define AWS_DATE_BYTES 17 /* "20130524T000000Z" */
#define AWS_EMPTY_SHA256                                                                           \
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" /* of the body */

/* host: with its port unless it is the scheme's own; path and query as they are sent: all but
 * letters, digits and -._~ (in the path /) as %XX, names of the query in order, "" for none. The
 * value of the Authorization header is appended; it goes with x-amz-date (date),
 * x-amz-content-sha256 (AWS_EMPTY_SHA256) and, when there is one, x-amz-security-token. */
void aws_sign(const struct aws_keys *keys, const char *host, const char *path, const char *query,
              const char date[AWS_DATE_BYTES], struct strbuf *out);
