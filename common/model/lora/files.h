#pragma once
/* Where an adapter's files are. Private to common/model/lora. */
#include <limits.h>

#include "common/base/status.h"

/* Where the folder's file is to be opened. STATUS_NOT_FOUND; STATUS_DENIED: not below root. */
MUST_USE enum status lora_file_find(const char *folder, const char *root, const char *file,
                                    char out[PATH_MAX], struct error *err);
