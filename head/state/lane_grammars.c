#include "head/state/lane_grammars.h"

struct lane_grammar *lane_grammars_find(const struct lane_grammars *t, uint64_t id)
{
    uint32_t begin = 0, end = t->n;
    while (begin < end) {
        uint32_t middle = begin + (end - begin) / 2;
        if (t->all[middle].id == id)
            return &t->all[middle];
        if (t->all[middle].id < id)
            begin = middle + 1;
        else
            end = middle;
    }
    return NULL;
}
