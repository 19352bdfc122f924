#pragma once
/* A page of S3's ListObjectsV2, read strictly: elements, attributes, text, the five entities and
 * numbered ones; no DOCTYPE, CDATA, comment or processing instruction behind the first line. The
 * server is not trusted: depth, lengths and numbers are bounded. Format: XML 1.0, and the S3 API
 * reference's ListBucketResult. */
#include <stdint.h>

#include "common/base/str.h"

#define S3_KEY_MAX 1024

/* An object, or a folder of some: what keys have in common up to the delimiter behind the prefix
 * that was asked for. */
struct s3_object {
    const char *key, *etag; /* for as long as the call; etag "" when there is none */
    uint64_t n_bytes;
    bool is_folder; /* of which only the key is said, with its slash */
};
struct s3_page {
    bool is_truncated;
    char next_token[2048]; /* what asks for the next page; "" without */
};
/* PROTOCOL: not such a page. An error of on_object ends it and is passed on. */
MUST_USE enum status s3_xml_read(struct str xml,
                                 enum status (*on_object)(void *ctx, const struct s3_object *o,
                                                          struct error *err),
                                 void *ctx, struct s3_page *page, struct error *err);
