#pragma once
/* Declares checks and defaults that the option table of cox-worker cannot express. */
#include "common/base/dtype.h"
#include "common/options/worker.h"

/* Returns the first served name of the options, else `own`. */
const char *worker_options_name(const struct worker_options *o, const char *own);
/* Returns true when the options select the null device, which does not communicate with other
 * ranks. */
bool worker_options_are_null(const struct worker_options *o);
/* Returns the type of --kv-cache-dtype. KV_CACHE_AUTO has no type, because the model decides. */
enum dtype worker_options_kv_dtype(const struct worker_options *o);
/* Checks --dtype on a device with activations of type `own` ("float32", "bfloat16"). A 16-bit
 * type that the device replaces by `own` only gives a warning in the log. STATUS_UNSUPPORTED:
 * --dtype is float32 and the device does not support it. */
MUST_USE enum status worker_options_check_dtype(const struct worker_options *o, const char *own,
                                                struct error *err);
/* Returns the port of /livez, /readyz and /metrics. */
uint16_t worker_options_http_port(const struct worker_options *o);
/* Checks combinations of options, which the rows of the option table cannot express. */
MUST_USE enum status worker_options_check(const struct worker_options *o, struct error *err);
