#pragma once
/* Reads a project's page of a Python package index (the simple API: PEP 503's HTML, PEP 691's
 * JSON). */
#include <stdint.h>

#include "common/base/str.h"

struct index_file {
    char *link;       /* link as in the page, without the part behind #; freed with `mem_free` */
    char sha256[65];  /* "" = the page has none */
    uint64_t n_bytes; /* FETCH_UNKNOWN = the page does not say */
};
/* Finds the file with exactly this name. STATUS_NOT_FOUND: the page has none. STATUS_PROTOCOL:
 * it is no such page. */
MUST_USE enum status pull_index_read(struct str page, const char *name, struct index_file *out,
                                     struct error *err);
