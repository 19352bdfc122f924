#pragma once
/* The files of a folder that make the model, opened. */
#include "common/base/status.h"
#include "common/model/info/info.h"
#include "common/model/weights/kind.h"

struct weights;
/* Fills shards, tensors, n_file_bytes and config_digest. */
MUST_USE enum status weights_open_folder(struct weights *w, enum weights_kind kind,
                                         struct error *err);
/* Tells models apart whose weight files are not looked at (--load-format dummy): XXH3-128 over
 * config.json. */
MUST_USE enum status weights_config_identity(const struct model_info *m, uint8_t out[16],
                                             struct error *err);
