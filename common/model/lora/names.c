/* Keeps the names of modules in an adapter's configuration. Comparing thousands of names with
 * thousands of modules would take millions of comparisons while every rank of a replica waits.
 * So the names are sorted, and looked up by each end of a module's name. */
#include "common/model/lora/names.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/mem.h"

void lora_names_init(struct lora_names *s, uint32_t most)
{
    *s = (struct lora_names){.all = mem_array(most, sizeof *s->all)};
}

void lora_names_add(struct lora_names *s, const char *name, const json_t *value)
{
    s->all[s->n] = (struct lora_name){name, value, s->n};
    s->n++;
}

static int compare(const void *a, const void *b)
{
    const struct lora_name *x = a, *y = b;
    int order = strcmp(x->name, y->name);
    return order != 0 ? order : (x->i > y->i) - (x->i < y->i);
}

void lora_names_sort(struct lora_names *s)
{
    if (s->n > 1)
        qsort(s->all, s->n, sizeof *s->all, compare);
}

void lora_names_fini(struct lora_names *s)
{
    mem_free(s->all);
    *s = (struct lora_names){0};
}

/* Returns the index of the first entry with this name. A list may contain a name twice. */
static uint32_t find(const struct lora_names *s, const char *name)
{
    uint32_t low = 0, high = s->n;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (strcmp(s->all[middle].name, name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool is_at(const struct lora_names *s, uint32_t i, const char *name)
{
    return i < s->n && strcmp(s->all[i].name, name) == 0;
}

/* Returns the next shorter end of a name: "b.c" for "a.b.c", then "c", then NULL. */
static const char *next_end(const char *end)
{
    const char *dot = strchr(end, '.');
    return dot ? dot + 1 : NULL;
}

const struct lora_name *lora_names_find(const struct lora_names *s, const char *module)
{
    const struct lora_name *first = NULL;
    for (const char *end = module; end; end = next_end(end)) {
        uint32_t i = find(s, end);
        if (is_at(s, i, end) && (!first || s->all[i].i < first->i))
            first = &s->all[i];
    }
    return first;
}

void lora_names_mark(const struct lora_names *s, const char *module, bool *seen)
{
    for (const char *end = module; end; end = next_end(end))
        for (uint32_t i = find(s, end); is_at(s, i, end); i++)
            seen[s->all[i].i] = true;
}
