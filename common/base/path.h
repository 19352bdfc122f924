#pragma once
/* Paths as realpath gives them: absolute, without links, dots and doubled slashes. */
#include <stdbool.h>

/* Does path lie below root, which itself does not? */
bool path_is_below(const char *path, const char *root);
/* errno of a file that cannot be opened: is it what an operator has to mend at the path itself (no
 * such folder, no permission, a folder instead of a file)? Anything else, such as a disk that is
 * full, broken or read-only, may pass by itself, and is to keep no server from starting. */
bool path_is_wrong(int os_error);
