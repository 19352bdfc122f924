#pragma once
/* Paths as realpath gives them: absolute, without links, dots and doubled slashes. */
#include <stdbool.h>

/* Does path lie below root, which itself does not? */
bool path_is_below(const char *path, const char *root);
