#pragma once
/* Brings the weights that a program names from the model's files into the device's memory. The file
 * is hostile: every tensor's presence, dtype and shape are checked by loader_measure, before a byte
 * is allocated. weights NULL: there are no files, and numbers are made up (worker/weights/dummy.h).
 */
#include "common/model/weights/weights.h"
#include "worker/model/program.h"
#include "worker/weights/load_progress.h"

/* Everything loaded lies in one piece. */
struct loaded {
    void *memory;
    uint64_t n_bytes;
};

/* The MLP's width can be cut between so many: a panel, or a block of the widest format of the
 * matrices that have this many inputs. */
uint32_t loader_inner_unit(const struct model_config *c, const struct weights *w);
/* Bytes that loader_load will take. Errors name the tensor, what it is and what it should be. */
MUST_USE enum status loader_measure(const struct program *p, const struct weights *w,
                                    const struct device *d, uint64_t *out, struct error *err);
/* Measures again. progress: NULL, or one that was begun. Files are read in pieces, and let go of
 * piece by piece. STATUS_NO_MEMORY; STATUS_INVALID when divisors of rotary angles are not positive.
 */
MUST_USE enum status loader_load(struct program *p, const struct weights *w, struct device *d,
                                 struct loaded *out, struct load_progress *progress,
                                 struct error *err);
void loader_unload(struct device *d, struct loaded *l);
/* The dtype that most bytes of the weights have, for the configuration hash and for people. */
enum dtype loader_main_dtype(const struct program *p, const struct weights *w);
