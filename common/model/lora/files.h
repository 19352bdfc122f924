#pragma once
/* The places of an adapter's files. Private to common/model/lora. */
#include <limits.h>

#include "common/base/status.h"

/* Sets out to the path at which the folder's file is to be opened. STATUS_NOT_FOUND; STATUS_DENIED:
 * it is not below root. */
MUST_USE enum status lora_file_find(const char *folder, const char *root, const char *file,
                                    char out[PATH_MAX], struct error *err);
