#pragma once
/* Reaches the head for a command of the admin API. The function runs on the main thread. */
#include "cli/client/admin.h"

/* Follows a standby as `admin_follow` does. When no head answers, the function also prints where
 * this user's clusters are. Returns false then; the error is printed. */
bool reach_head(struct admin_access *o, const char *command, bool tell);
