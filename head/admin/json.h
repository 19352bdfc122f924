#pragma once
/* Builds the JSON of the admin API (docs/reference/admin-api.md) from the core. It only reads
 * the core, and the caller owns each returned value. The code runs on the loop thread. */
#include <jansson.h>

#include "head/core/core.h"

/* `waits` is true when this head is a standby that waits for the lease. Missing workers are then
 * no fault. */
json_t *admin_json_status(const struct head_core *h, bool waits);
/* Returns the status without the long lists: nodes, workers and replicas. */
json_t *admin_json_summary(const struct head_core *h, bool waits);
json_t *admin_json_sleep(const struct head_core *h);
json_t *admin_json_scale(const struct head_core *h);
json_t *admin_json_adapters(const struct head_core *h);
json_t *admin_json_events(const struct head_core *h, uint64_t since);
/* Converts the logfmt fields of an event to a JSON object of strings. */
json_t *admin_json_fields(const char *logfmt);
