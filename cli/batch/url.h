#pragma once
/* Transfers the input and output files of `cox run-batch` that are URLs. The input is fetched
 * with GET before the run. The output is sent with PUT after the run. The gateway's API key is
 * never sent to these URLs. Calls block the caller's thread. */
#include <stdbool.h>

#include "common/base/status.h"
#include "common/base/str.h"

enum { BATCH_URL_SILENCE_MS = 60000 }; /* a transfer fails after this time without a byte */

/* Returns true when `path` begins with http:// or https://. */
bool batch_url_is(const char *path);
/* Appends the URL in a form for messages: without USER:PASSWORD, and without the query, which
 * may contain a signature. */
void batch_url_append(struct strbuf *b, const char *url);
/* Fetches the URL into an unnamed file on the file system of `folder`. The file has at most 8
 * GiB. The caller closes *fd. `path`, of at least 32 bytes, receives a path that opens the file. */
MUST_USE enum status batch_url_fetch(const char *url, const char *folder, int *fd, char *path,
                                     struct error *err);
/* Makes an empty file in `folder`. `path`, of PATH_MAX bytes, receives the file's path. */
MUST_USE enum status batch_url_make_file(const char *folder, char *path, struct error *err);
MUST_USE enum status batch_url_send(const char *path, const char *url, struct error *err);
