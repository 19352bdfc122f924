#pragma once
/* Formats the answer of GET /api/usage as the table of `cox usage`. A missing field is not an
 * error. */
#include <jansson.h>

#include "common/base/str.h"

/* Renders the totals first, then each tenant. Tenants without a name are shown by their number. */
void usage_view_render(const json_t *usage, struct strbuf *out);
