#pragma once
/* The head's authorized file, with those that it names, read again when one changes: looked at
 * twice a second, taken when it was the same at two looks. A file that is gone or has an error
 * changes nothing and is told of, once. Loop thread. */
#include "common/base/status.h"
#include "common/keys/authorized.h"
#include "common/loop/loop.h"

struct key_watch;
/* next: what the file says now, borrowed for the call, which may exchange it for what it had. */
typedef void key_watch_fn(void *ctx, struct authorized *next);
/* Reads the file for the first time, into first. dir is copied. */
MUST_USE enum status key_watch_start(struct loop *l, const char *dir, struct authorized *first,
                                     key_watch_fn *fn, void *ctx, struct key_watch **out,
                                     struct error *err);
void key_watch_free(struct key_watch *w); /* NULL is fine */
