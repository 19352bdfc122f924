#pragma once
/* Reads model_info from a GGUF's metadata: family, lengths and EOS ids. The caller has set
 * format, path and name, and frees the struct after an error. Only common/model/info includes
 * this header. */
#include "common/base/status.h"
#include "common/model/info/info.h"

MUST_USE enum status model_info_read_gguf(struct model_info *m, struct error *err);
