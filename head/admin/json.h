#pragma once
/* The JSON of the admin API (docs/reference/admin-api.md), made from the core. Read-only; each call
 * gives a new value that the caller decrefs. Loop thread. */
#include <jansson.h>

#include "head/core/core.h"

/* waits: for the lease; that nothing is here is no news then. */
json_t *admin_json_status(const struct head_core *h, bool waits);
/* The same without what there are hundreds of: nodes, workers, replicas. */
json_t *admin_json_summary(const struct head_core *h, bool waits);
json_t *admin_json_scale(const struct head_core *h);
json_t *admin_json_adapters(const struct head_core *h);
json_t *admin_json_events(const struct head_core *h, uint64_t since);
/* logfmt fields → JSON object of strings: for events. */
json_t *admin_json_fields(const char *logfmt);
