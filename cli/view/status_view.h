#pragma once
/* Formats the text of `cox status` from the answer of GET /api/status, in Ray's order: nodes,
 * usage, demands, then replicas, workers, gateways, throughput, warnings.
 * A field that is missing or of another type is shown as "-", a control character as "?". */
#include <jansson.h>

#include "common/base/str.h"

void status_view_render(const json_t *status, struct strbuf *out);
bool status_view_is_healthy(const json_t *status);
/* Returns true when the head waits for the lease. The answer of such a head describes no
 * cluster. */
bool status_view_is_standby(const json_t *status);
/* Appends one sentence, which says that the head waits for the lease and which head serves. */
void status_view_render_standby(const json_t *status, struct strbuf *out);
/* Returns true for a healthy head, and for a standby that knows a serving head and could take
 * over from it. */
bool status_view_is_fine(const json_t *status);
