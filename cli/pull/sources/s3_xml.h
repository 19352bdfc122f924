#pragma once
/* Reads a page of S3's ListObjectsV2 strictly: elements, attributes, text, the five named
 * entities and numeric ones. DOCTYPE, CDATA, comments, and processing instructions behind the
 * first line are refused. The server is not trusted: depth, lengths and numbers are bounded.
 * Format: XML 1.0, and ListBucketResult in the S3 API reference. */
#include <stdint.h>

#include "common/base/str.h"

#define S3_KEY_MAX 1024

/* `s3_object` describes an object, or a folder of objects. A folder is the common part of keys
 * up to the delimiter behind the requested prefix. */
struct s3_object {
    const char *key, *etag; /* strings are valid during the call; etag "" = none */
    uint64_t n_bytes;
    bool is_folder; /* the entry is a folder: only `key` is set, with its slash */
};
struct s3_page {
    bool is_truncated;
    char next_token[2048]; /* token that requests the next page; "" = none */
};
/* Reads one page. STATUS_PROTOCOL: the text is not a page of ListObjectsV2. An error of
 * on_object ends the read and is returned. */
MUST_USE enum status s3_xml_read(struct str xml,
                                 enum status (*on_object)(void *ctx, const struct s3_object *o,
                                                          struct error *err),
                                 void *ctx, struct s3_page *page, struct error *err);
