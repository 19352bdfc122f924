#pragma once
/* Fetches the model that a reference names (common/model/info/ref.h) into the cache, completely
 * or not at all. Unfinished parts lie next to the model's folder, and the next run continues
 * them. Several runs on one volume fetch a model once. When the model is in the cache, nothing
 * is written and no request is sent. */
#include "cli/pull/files/list.h"
#include "cli/pull/options.h"
#include "common/model/info/ref.h"

MUST_USE enum status pull_model(const struct pull_options *o, const char *model,
                                struct pull_result *out, struct error *err);

/* `pull_sink` describes the destination of pull_into. `prepare` makes NAME.part for each file in
 * `folder`, as links or files. */
struct pull_sink {
    const char *folder;
    enum status (*prepare)(void *ctx, const struct pull_list *l, struct error *err);
    void *ctx;
    bool only_heads; /* only the parts that a plan needs are fetched (files/head.h) */
};
/* Fetches the files of a remote reference into the sink. The files are checked as by `cox pull`,
 * but no cache and no lock are used. The caller checks o->offline. */
MUST_USE enum status pull_into(const struct pull_options *o, const struct model_ref *r,
                               const struct pull_sink *sink, struct error *err);
