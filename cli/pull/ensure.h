#pragma once
/* A model that is named is fetched: every command that takes a MODEL calls pull_ensure before it
 * opens the model. The fetch is `cox pull`'s own (pull_model): its bar, its lock, its resumption;
 * so several processes of one volume fetch a model once, and the others wait. Nobody is asked, and
 * nothing is written, when the model is there. */
#include "common/base/status.h"

struct pull_ensure {
    const char *command;   /* "up": in front of what is said */
    const char *cache_dir; /* as the command was told; NULL: ~/.cache/coxswain */
    bool offline;          /* a model that is missing is an error */
};

/* OK: MODEL is in the cache, or it is none that is fetched (a path, "null", a name of no form):
 * model_info_open has the last word. *was_fetched: this call has brought it, or waited for who did.
 * Other statuses are of a fetch that failed (pull_exit_code); CLOSED: a signal ended it. */
MUST_USE enum status pull_ensure(const struct pull_ensure *e, const char *model, bool *was_fetched,
                                 struct error *err);
