#pragma once
/* Fetches a model before it is opened. Every command that takes a MODEL calls `pull_ensure`
 * first. The fetch is that of `cox pull` (`pull_model`), with its progress bar, lock and
 * resumption. Processes on one volume therefore fetch a model once, and the others wait. When
 * the model is in the cache, no server is asked and nothing is written. */
#include "common/base/status.h"

struct pull_ensure {
    const char *command;   /* name of the command in front of messages: "up" */
    const char *cache_dir; /* the command's cache folder; NULL = ~/.cache/coxswain */
    bool offline;          /* a missing model is an error */
};

/* Fetches the model if it is missing.
 * STATUS_OK: the model is in the cache, or `model` is a path, "null" or an invalid name, which
 * is not fetched. model_info_open decides about such names.
 * *was_fetched: this call has fetched the model, or waited for another process that did.
 * STATUS_CLOSED: a signal ended the fetch. Other statuses mean that the fetch failed
 * (pull_exit_code). */
MUST_USE enum status pull_ensure(const struct pull_ensure *e, const char *model, bool *was_fetched,
                                 struct error *err);
