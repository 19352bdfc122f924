#include "head/state/engine_slot_grammars.h"

struct engine_slot_grammar *engine_slot_grammars_find(const struct engine_slot_grammars *t,
                                                      uint64_t id)
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
