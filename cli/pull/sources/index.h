#pragma once
/* Reads a project's page of a Python package index (the simple API: PEP 503's HTML, PEP 691's
 * JSON). */
#include <stdint.h>

#include "common/base/str.h"

struct index_file {
    /* link as in the page, without the part behind #; the owner frees it with `mem_free` */
    char *link;
    char sha256[65];  /* SHA-256 in hexadecimal; "" = the page has none */
    uint64_t n_bytes; /* size in bytes; FETCH_UNKNOWN = the page does not give the size */
};
/* Finds the file with exactly this name. STATUS_NOT_FOUND: the page has no such file.
 * STATUS_PROTOCOL: the text is not a page of the simple API. */
MUST_USE enum status pull_index_read(struct str page, const char *name, struct index_file *out,
                                     struct error *err);
