#pragma once
/* Declares the files of head/admin/dashboard as bytes. CMake generates the .c file from them
 * (cmake/EmbedFiles.cmake). */
#include "common/http/handlers/files.h"

extern const struct http_file dashboard_files[];
extern const size_t n_dashboard_files;
