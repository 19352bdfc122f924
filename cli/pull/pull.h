#pragma once
/* `cox pull`: brings what a reference names (common/model/info/ref.h) into the cache, whole or not
 * at all. What is unfinished lies beside it and is gone on with by the next run; many runs on one
 * volume fetch once. When all is there nothing is written and nobody is asked. */
#include "cli/pull/files/list.h"
#include "cli/pull/options.h"
#include "common/model/info/ref.h"

MUST_USE enum status pull_model(const struct pull_options *o, const char *model,
                                struct pull_result *out, struct error *err);

/* The folder that the files go to: prepare makes NAME.part of each in folder, links or files. */
struct pull_sink {
    const char *folder;
    enum status (*prepare)(void *ctx, const struct pull_list *l, struct error *err);
    void *ctx;
    bool only_heads; /* what it is planned from (files/head.h) */
};
/* The files of a remote reference, checked as by cox pull, into the sink; no cache, no lock. */
MUST_USE enum status pull_into(const struct pull_options *o, const struct model_ref *r,
                               const struct pull_sink *sink, struct error *err);
