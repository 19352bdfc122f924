#pragma once
/* Shows what tenants used (head/usage): as JSON for GET /api/usage, and as series of /metrics. The
 * code only reads the core. It runs on the loop thread. */
#include "common/base/metrics.h"
#include "head/core/core.h"

/* Writes the answer of GET /api/usage: totals, then tenants by step time, and the row `other`,
 * if it has anything, last. */
void usage_report_json(const struct head_core *h, struct strbuf *out);

/* Series of at most USAGE_SERIES tenants and of `other`. `registry` and `labels`, to which the
 * tenant is added, are borrowed. */
struct usage_series;
struct usage_series *usage_series_new(struct metrics *registry, const char *labels);
void usage_series_update(struct usage_series *s, const struct head_core *h);
void usage_series_free(struct usage_series *s);
