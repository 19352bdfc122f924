#pragma once
/* Fetches a model before it is opened. Every command that takes a MODEL calls `pull_ensure`
 * first. `pull_ensure` calls `pull_model` as `cox pull` does, with the same progress bar, lock
 * and resumption. When several processes share a volume, one process fetches the model and the
 * others wait. When the model is in the cache, no request is sent and nothing is written. */
#include "common/base/status.h"

struct pull_ensure {
    const char *command;   /* name of the command in front of messages: "up" */
    const char *cache_dir; /* the command's cache folder; NULL = ~/.cache/coxswain */
    bool offline;          /* a missing model is an error */
    bool has_loop;         /* a loop handles signals: the fetch installs no handlers (pull_stop) */
};

/* Fetches the model if it is missing.
 * STATUS_OK: the model is in the cache, or `model` is a path, "null" or an invalid name, which
 * is not fetched. model_info_open reports an invalid name.
 * *was_fetched: this call has fetched the model, or waited for another process that did.
 * STATUS_CLOSED: a signal ended the fetch. Other statuses mean that the fetch failed
 * (pull_exit_code). */
MUST_USE enum status pull_ensure(const struct pull_ensure *e, const char *model, bool *was_fetched,
                                 struct error *err);
