#pragma once
/* Does anybody listen there? For who waits at its own address for somebody who may have gone. */
#include "common/base/status.h"
#include "common/base/str.h"

/* address: as comm_address says it. STATUS_IO: nobody does any more; anything else that is not OK
 * is no answer (STATUS_INVALID, STATUS_LIMIT). A host that does not answer within timeout_ms is OK:
 * it may be slow. */
MUST_USE enum status comm_probe(struct str address, uint32_t timeout_ms, struct error *err);
