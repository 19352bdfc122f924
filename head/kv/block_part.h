#pragma once
#include <stdbool.h>
#include <stdint.h>

/* Describes one block of a prefix that moves between the tables of two replicas. `index` is its
 * number in KV group `i_group`. The blocks of a prefix are those that a hit of the same length
 * takes, in order of group and then index. Both replicas therefore have the same list. */
struct blocks_part {
    uint32_t i_group, index, id;
    bool was_there; /* import only: the cache had the block, so nothing is copied */
};
