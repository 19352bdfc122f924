#pragma once
/* Creates the folder of a cluster's keys. The function may run on any thread. */
#include "common/base/status.h"

/* Creates the missing files: pairs for head, gateway, worker and operator, and the file
 * `authorized`. A second call changes nothing. PEM files are never overwritten. */
MUST_USE enum status keys_make_dir(const char *dir, struct error *err);
