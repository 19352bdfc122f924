#include "gateway/generation/prompt.h"

#include "common/base/mem.h"

void prompt_list_init(struct prompt_list *l, uint32_t n)
{
    *l = (struct prompt_list){.items = mem_array(n, sizeof *l->items), .n = n};
}

void prompt_list_fini(struct prompt_list *l)
{
    for (uint32_t i = 0; i < l->n; i++) {
        mem_free((void *)l->items[i].text.ptr);
        mem_free(l->items[i].ids);
        mem_free(l->items[i].offsets);
    }
    mem_free(l->items);
    *l = (struct prompt_list){0};
}
