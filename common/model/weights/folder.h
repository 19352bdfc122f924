#pragma once
/* Opens the weight files of a model's folder. */
#include "common/base/status.h"
#include "common/model/info/info.h"
#include "common/model/weights/kind.h"

struct weights;
/* Opens the folder's weight files, and fills shards, tensors, n_file_bytes and config_digest of
 * `w`. */
MUST_USE enum status weights_open_folder(struct weights *w, enum weights_kind kind,
                                         struct error *err);
/* Computes the identity of a model without weight files (--load-format dummy): XXH3-128 over
 * config.json. */
MUST_USE enum status weights_config_identity(const struct model_info *m, uint8_t out[16],
                                             struct error *err);
