#pragma once
/* Fetches a model before it is opened. Every command that takes a MODEL calls `pull_ensure`
 * first. The fetch is that of `cox pull` (`pull_model`), with its progress bar, lock and
 * resumption, so processes on one volume fetch a model once and the others wait. When the model
 * is in the cache, no server is asked and nothing is written. */
#include "common/base/status.h"

struct pull_ensure {
    const char *command;   /* "up", in front of messages */
    const char *cache_dir; /* the command's cache folder; NULL = ~/.cache/coxswain */
    bool offline;          /* a missing model is an error */
};

/* STATUS_OK: the model is in the cache, or it is not one that is fetched (a path, "null", an
 * invalid name); model_info_open decides about those.
 * *was_fetched: this call has fetched the model, or waited for another process that did.
 * STATUS_CLOSED: a signal ended the fetch. Other statuses mean that the fetch failed
 * (pull_exit_code). */
MUST_USE enum status pull_ensure(const struct pull_ensure *e, const char *model, bool *was_fetched,
                                 struct error *err);
