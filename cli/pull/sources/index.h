#pragma once
/* A project's page of a Python package index (the simple API: PEP 503's HTML, PEP 691's JSON). */
#include <stdint.h>

#include "common/base/str.h"

struct index_file {
    char *link;       /* as it stands there, without what follows #; for mem_free */
    char sha256[65];  /* "" when it does not say */
    uint64_t n_bytes; /* FETCH_UNKNOWN likewise */
};
/* The file of that very name. NOT_FOUND: it has none; PROTOCOL: it is no such page. */
MUST_USE enum status pull_index_read(struct str page, const char *name, struct index_file *out,
                                     struct error *err);
