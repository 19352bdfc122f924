#pragma once
/* Serves pages inside a binary: the head's dashboard, the gateway's chat page. CMake writes the
 * tables (cmake/EmbedFiles.cmake). A page may load scripts and styles of its own origin and call
 * that origin's API. Its Content-Security-Policy forbids everything else. */
#include "common/http/server/server.h"

struct http_file {
    const char *path, *type; /* URL path and Content-Type */
    const char *bytes;
    size_t n_bytes;
};

/* Finds the file of a path. Returns NULL when no file has that path. */
const struct http_file *http_files_find(const struct http_file *files, size_t n, struct str path);
void http_files_answer(struct http_request *r, const struct http_file *f);
