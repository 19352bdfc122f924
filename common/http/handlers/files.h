#pragma once
/* Pages that travel inside a binary: the head's dashboard, the gateway's chat page. CMake writes
 * the tables (cmake/EmbedFiles.cmake). A page may load scripts and styles of its own origin and ask
 * that origin's API; everything else is forbidden by its Content-Security-Policy. */
#include "common/http/server/server.h"

struct http_file {
    const char *path, *type; /* as HTTP says them */
    const char *bytes;
    size_t n_bytes;
};

/* NULL: no file is served at that path. */
const struct http_file *http_files_find(const struct http_file *files, size_t n, struct str path);
void http_files_answer(struct http_request *r, const struct http_file *f);
