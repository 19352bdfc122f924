#pragma once
/* The files of head/dashboard as bytes; CMake makes the .c from them. */
#include <stddef.h>

struct dashboard_file {
    const char *path, *type; /* as HTTP says them */
    const char *bytes;
    size_t n_bytes;
};
extern const struct dashboard_file dashboard_files[];
extern const size_t n_dashboard_files;
