#pragma once
/* The folder of a cluster's keys, and how it comes to be. Any thread. */
#include "common/base/status.h"

/* Makes what is missing: head, gateway, worker, operator pairs and authorized. Idempotent. PEM
 * files are never written over. */
MUST_USE enum status keys_make_dir(const char *dir, struct error *err);
