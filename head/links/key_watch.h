#pragma once
/* Reads the head's authorized file, and the files that it names, again when one changes. It
 * checks the files twice a second and accepts new content that is the same in two checks. A
 * missing or invalid file changes nothing and is logged once. The code runs on the loop thread. */
#include "common/base/status.h"
#include "common/keys/authorized.h"
#include "common/loop/loop.h"

struct key_watch;
/* Receives in `next` the current content of the file, borrowed for the call. The callback may
 * swap it with its own. */
typedef void key_watch_fn(void *ctx, struct authorized *next);
/* Reads the file into `first` and starts to watch it. `dir` is copied. */
MUST_USE enum status key_watch_start(struct loop *l, const char *dir, struct authorized *first,
                                     key_watch_fn *fn, void *ctx, struct key_watch **out,
                                     struct error *err);
void key_watch_free(struct key_watch *w); /* `w` may be NULL */
