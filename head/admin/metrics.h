#pragma once
/* Exports the head's metrics. Values are copied out of the core when a client asks. Metrics that
 * vLLM also has use vLLM's names, so that its dashboards work. */
#include "common/base/metrics.h"
#include "head/core/core.h"

struct head_metrics;
struct head_metrics *head_metrics_new(const char *model_name);
/* Sets `m`'s histograms in the core, which adds values to them itself. */
void head_metrics_attach(struct head_metrics *m, struct head_core *core);
/* `waits` is true when this head is a standby, which does not know the load. */
void head_metrics_update(struct head_metrics *m, const struct head_core *core, bool waits);
/* Called only by a head that has a lease store. */
void head_metrics_set_lease(struct head_metrics *m, bool serves, bool store_reached);
struct metrics *head_metrics_registry(struct head_metrics *m);
void head_metrics_free(struct head_metrics *m); /* `m` may be NULL */
