#pragma once
/* Declares the contents of the files in head/admin/dashboard as byte arrays. CMake generates the
 * .c file from them (cmake/EmbedFiles.cmake). */
#include "common/http/handlers/files.h"

extern const struct http_file dashboard_files[];
extern const size_t n_dashboard_files;
