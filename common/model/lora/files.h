#pragma once
/* Finds the paths of an adapter's files. Only common/model/lora includes this header. */
#include <limits.h>

#include "common/base/status.h"

/* Sets `out` to the real path of the adapter's file. Returns STATUS_NOT_FOUND when there is no
 * such file, and STATUS_DENIED when the real path is not below `root`. */
MUST_USE enum status lora_file_find(const char *folder, const char *root, const char *file,
                                    char out[PATH_MAX], struct error *err);
