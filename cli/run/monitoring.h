#pragma once
/* Starts prometheus for a run with `monitoring: true`. Only cli/run includes this header. */
#include "cli/run/step.h"

MUST_USE enum status run_start_monitoring(struct run_keeper *k, struct error *err);
