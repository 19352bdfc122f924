#pragma once
/* Files of `cox run-batch` that are URLs: the input is fetched with GET before the run, the output
 * is sent with PUT after it. No key of the gateway goes there. Blocking; the caller's thread. */
#include <stdbool.h>

#include "common/base/status.h"
#include "common/base/str.h"

enum { BATCH_URL_SILENCE_MS = 60000 }; /* without a byte for so long a transfer has failed */

/* http:// or https:// */
bool batch_url_is(const char *path);
/* The URL for people: without USER:PASSWORD, and without the query, which may be a signature. */
void batch_url_append(struct strbuf *b, const char *url);
/* Makes a file that has no name and holds what the URL answers, at most 8 GiB. *fd is the caller's
 * to close; path, of at least 32 bytes, opens it. folder: where the bytes lie. */
MUST_USE enum status batch_url_fetch(const char *url, const char *folder, int *fd, char *path,
                                     struct error *err);
/* Makes an empty file with a name in folder; path has PATH_MAX bytes. */
MUST_USE enum status batch_url_make_file(const char *folder, char *path, struct error *err);
MUST_USE enum status batch_url_send(const char *path, const char *url, struct error *err);
