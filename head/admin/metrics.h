#pragma once
/* The head's metrics: values are copied out of the core when somebody asks. vLLM's names where vLLM
 * has the thing, so that its dashboards work. */
#include "common/base/metrics.h"
#include "head/core/core.h"

struct head_metrics;
struct head_metrics *head_metrics_new(const char *model_name);
/* Histograms are filled by the core itself. */
void head_metrics_attach(struct head_metrics *m, struct head_core *core);
/* waits: for the lease, and knows of no load. */
void head_metrics_update(struct head_metrics *m, const struct head_core *core, bool waits);
/* Only of a head that has a store. */
void head_metrics_set_lease(struct head_metrics *m, bool serves, bool store_reached);
struct metrics *head_metrics_registry(struct head_metrics *m);
void head_metrics_free(struct head_metrics *m); /* NULL is fine */
