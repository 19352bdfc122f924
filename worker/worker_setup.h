#pragma once
/* Declares the objects and values that a worker is started with. All pointers are borrowed. */
#include "common/base/metrics.h"
#include "common/loop/loop.h"
#include "common/options/worker.h"
#include "worker/executor/executor.h"
#include "worker/link/head_link.h"

struct worker_setup {
    struct loop *loop;
    const struct worker_options *options;
    struct executor *executor;
    struct metrics *metrics;
    struct head_link_options link;
    const char *node; /* name of the host or pod */
    const char *http_address;
};
