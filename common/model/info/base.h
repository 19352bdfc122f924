#pragma once
/* Declares functions that the two readers of a model's files share. Only common/model/info
 * includes this header. */
#include "common/base/status.h"
#include "common/base/str.h"
#include "common/model/info/info.h"

/* Adds an EOS id unless it is listed already. Returns STATUS_INVALID when the id is not in the
 * vocabulary or there are too many ids. */
MUST_USE enum status model_info_add_eos(struct model_info *m, uint64_t id, struct error *err);
/* Sets the error "architecture x is not supported; supported: ...". */
enum status model_info_unknown(const struct model_info *m, struct str arch, struct error *err);
