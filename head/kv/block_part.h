#pragma once
#include <stdbool.h>
#include <stdint.h>

/* One block of a prefix that moves between two replicas' tables: the index-th of a KV group. Those
 * of a prefix are what a hit of as many tokens takes, in order of groups and in them of index: the
 * same list on both sides. */
struct blocks_part {
    uint32_t i_group, index, id;
    bool was_there; /* of an import: the cache had it, nothing is to be copied */
};
