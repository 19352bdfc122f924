#pragma once
/* Compares paths that have the form that realpath returns: absolute, without links, dots and
 * doubled slashes. */
#include <stdbool.h>

/* Tells whether `path` lies below `root`. A path does not lie below itself. */
bool path_is_below(const char *path, const char *root);
/* Takes the errno of a file that could not be opened. Returns true when the operator must
 * correct the path itself: no such folder, no permission, or a folder instead of a file. Other
 * errors, such as a disk that is full, broken or read-only, may go away and must not keep a
 * server from starting. */
bool path_is_wrong(int os_error);
