#pragma once
/* Checks whether a process listens at an address, for a rank that waits for a peer that may be
 * gone. */
#include "common/base/status.h"
#include "common/base/str.h"

/* Probes an address of comm_address. STATUS_IO: no process listens there any more.
 * STATUS_INVALID and STATUS_LIMIT: the probe failed and says nothing about the peer. A host that
 * does not answer within timeout_ms counts as STATUS_OK, because it may be slow. */
MUST_USE enum status comm_probe(struct str address, uint32_t timeout_ms, struct error *err);
