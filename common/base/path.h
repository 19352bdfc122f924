#pragma once
/* Compares paths that have the form that realpath returns: absolute, without links, dots and
 * doubled slashes. */
#include <stdbool.h>

/* Returns true when `path` lies below `root`. A path does not lie below itself. */
bool path_is_below(const char *path, const char *root);
/* Returns true when the operator must correct a path that could not be opened with this errno.
 * These errors are: no such folder, no permission, or a folder instead of a file. Other errors,
 * such as a disk that is full, broken or read-only, may be temporary and must not keep a server
 * from starting. */
bool path_is_wrong(int os_error);
