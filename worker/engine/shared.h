#pragma once
/* Gives the weights of a shard to other processes of this host, or takes them from one
 * (worker/share). Only weights in host memory that come from files are shared. */
#include "worker/engine/state.h"

/* Finds the weights of the measured shard, waits for the process that packs them, or begins to
 * pack. Sets e->share and e->found_bytes. Without an option, and after an error, which is logged,
 * there is no share, and the shard gets private memory. */
void engine_share_begin(struct engine *e);
/* Sets the memory of the loader. `progress` gets a callback that tells waiting processes. Call it
 * before loader_load. */
void engine_share_lend(struct engine *e, struct load_progress *progress);
/* Offers the loaded weights to other processes. */
void engine_share_publish(struct engine *e);
/* Drops the share, after loader_unload. */
void engine_share_end(struct engine *e);
