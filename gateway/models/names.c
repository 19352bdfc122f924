#include "gateway/models/names.h"

#include <string.h>
#include <strings.h>

#include "common/base/mem.h"
#include "common/config/distance.h"

static uint32_t hash(struct str s)
{
    uint32_t h = 0x811C9DC5u; /* FNV-1a */
    for (size_t i = 0; i < s.len; i++)
        h = (h ^ (uint8_t)s.ptr[i]) * 0x01000193u;
    return h;
}

/* Returns the slot of the name, or the free slot where it belongs. */
static struct model_name *slot_of(const struct model_names *t, struct str name)
{
    uint32_t i = hash(name) & (t->n_slots - 1);
    while (t->slots[i].text && !str_eq_c(name, t->slots[i].text))
        i = (i + 1) & (t->n_slots - 1);
    return &t->slots[i];
}

void model_names_reset(struct model_names *t, uint32_t n)
{
    model_names_fini(t);
    t->n_slots = 4;
    while (t->n_slots < 2 * n)
        t->n_slots *= 2;
    t->slots = mem_array(t->n_slots, sizeof *t->slots);
}

bool model_names_add(struct model_names *t, const struct model_name *name)
{
    struct model_name *at = slot_of(t, str_from(name->text));
    if (at->text)
        return false;
    *at = *name;
    t->n++;
    return true;
}

const struct model_name *model_names_find(const struct model_names *t, struct str name)
{
    const struct model_name *at = t->n > 0 ? slot_of(t, name) : NULL;
    return at && at->text ? at : NULL;
}

void model_names_fini(struct model_names *t)
{
    mem_free(t->slots);
    *t = (struct model_names){0};
}

/* Returns how much two names differ, or SIZE_MAX when they are not alike. */
static size_t difference(struct str name, const char *text)
{
    const struct str other = str_from(text);
    const size_t shorter = name.len < other.len ? name.len : other.len,
                 longer = name.len < other.len ? other.len : name.len;
    if (shorter > 2 && strncasecmp(name.ptr, text, shorter) == 0)
        return 1 + (longer - shorter) / 8;
    const size_t d = str_distance(name, other);
    return d <= longer / 3 ? d : SIZE_MAX;
}

uint32_t model_names_nearest(const struct model_names *t, struct str name,
                             bool (*may_know)(void *ctx, const char *text), void *ctx,
                             const char *out[MODEL_NEAREST_MAX])
{
    size_t differences[MODEL_NEAREST_MAX + 1];
    const char *found[MODEL_NEAREST_MAX + 1];
    uint32_t n = 0;
    for (uint32_t i = 0; i < t->n_slots; i++) {
        const char *text = t->slots[i].text;
        const size_t d = text ? difference(name, text) : SIZE_MAX;
        if (d == SIZE_MAX || !may_know(ctx, text))
            continue;
        uint32_t at = n;
        for (; at > 0 && (differences[at - 1] > d ||
                          (differences[at - 1] == d && strcmp(found[at - 1], text) > 0));
             at--) {
            differences[at] = differences[at - 1];
            found[at] = found[at - 1];
        }
        differences[at] = d;
        found[at] = text;
        n += n < MODEL_NEAREST_MAX;
    }
    memcpy(out, found, n * sizeof *out);
    return n;
}
