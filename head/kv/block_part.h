#pragma once
#include <stdbool.h>
#include <stdint.h>

/* Describes one block of a prefix that moves between the tables of two replicas. `index` is the
 * block's logical index in KV group `i_group`. A move uses the blocks that a cache hit of the
 * same length would use, in order of group and then index. Both replicas therefore have the same
 * list. */
struct blocks_part {
    uint32_t i_group, index, id;
    bool was_there; /* import only: the cache had the block, so nothing is copied */
};
