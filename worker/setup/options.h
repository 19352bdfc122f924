#pragma once
/* What cox-worker's option table cannot say. */
#include "common/base/dtype.h"
#include "common/options/worker.h"

/* The first of the names given, else the model's own. */
const char *worker_options_name(const struct worker_options *o, const char *own);
/* Does the null device answer? It needs no way to the other ranks. */
bool worker_options_are_null(const struct worker_options *o);
/* Of --kv-cache-dtype; KV_CACHE_AUTO is the model's matter. */
enum dtype worker_options_kv_dtype(const struct worker_options *o);
/* --dtype on a device whose activations are `own` ("float32", "bfloat16"): where it has other ones,
 * what can only be better for it is a warning in the log, and STATUS_UNSUPPORTED what is not to be
 * had. */
MUST_USE enum status worker_options_check_dtype(const struct worker_options *o, const char *own,
                                                struct error *err);
/* The port of /livez, /readyz, /metrics. */
uint16_t worker_options_http_port(const struct worker_options *o);
/* What one row cannot say: combinations. */
MUST_USE enum status worker_options_check(const struct worker_options *o, struct error *err);
