#include "common/model/weights/table.h"

#include <stdlib.h>

#include "common/base/mem.h"
#include "common/model/weights/state.h"

static int compare_names(const void *a, const void *b)
{
    return str_compare((*(const struct tensor *const *)a)->name,
                       (*(const struct tensor *const *)b)->name);
}

enum status weights_reserve(struct weights *w, uint64_t n, struct error *err)
{
    w->tensors = mem_try_array(n + 1, sizeof *w->tensors);
    w->by_name = mem_try_array(n + 1, sizeof *w->by_name);
    if (!w->tensors || !w->by_name)
        return error_set(err, STATUS_NO_MEMORY,
                         "not enough memory for the tensor list of %s. Free memory on this machine",
                         w->path);
    return STATUS_OK;
}

enum status weights_index_names(struct weights *w, struct error *err)
{
    for (uint64_t i = 0; i < w->n_tensors; i++)
        w->by_name[i] = &w->tensors[i];
    qsort(w->by_name, w->n_tensors, sizeof *w->by_name, compare_names);
    for (uint64_t i = 1; i < w->n_tensors; i++)
        if (str_eq(w->by_name[i - 1]->name, w->by_name[i]->name))
            return error_set(err, STATUS_INVALID,
                             "two files in %s contain the tensor " STR_FMT
                             ". Fetch the model again",
                             w->path, STR_ARG(w->by_name[i]->name));
    return STATUS_OK;
}

const struct tensor *weights_find(const struct weights *w, const char *name)
{
    struct tensor wanted = {.name = str_from(name)}, *p = &wanted;
    const struct tensor **hit =
        bsearch(&p, w->by_name, w->n_tensors, sizeof *w->by_name, compare_names);
    return hit ? *hit : NULL;
}
