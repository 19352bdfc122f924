#pragma once
/* The text of `cox status` from the answer of GET /api/status, in Ray's order: nodes, usage,
 * demands, then replicas, workers, gateways, throughput, warnings. Tolerant: a field that is
 * missing or of another type is shown as "-", control characters as "?". */
#include <jansson.h>

#include "common/base/str.h"

void status_view_render(const json_t *status, struct strbuf *out);
bool status_view_is_healthy(const json_t *status);
/* The head that answered waits for the lease, and shows no cluster. */
bool status_view_is_standby(const json_t *status);
/* One sentence: that it waits, and for whom. */
void status_view_render_standby(const json_t *status, struct strbuf *out);
/* Healthy, or a standby that could take over from a head that it knows. */
bool status_view_is_fine(const json_t *status);
