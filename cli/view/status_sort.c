#include "cli/view/status_sort.h"

#include <stdlib.h>
#include <string.h>

#include "cli/base/natural.h"
#include "cli/view/answer.h"
#include "common/base/mem.h"

static int compare_numbers(double a, double b)
{
    return a < b ? -1 : a > b;
}

static int by_key(const json_t *a, const json_t *b, const char *key)
{
    return natural_compare(answer_text(a, key), answer_text(b, key));
}

static int by_name(const void *x, const void *y)
{
    const json_t *a = *(json_t *const *)x, *b = *(json_t *const *)y;
    int order = by_key(a, b, "node");
    if (order == 0)
        order = compare_numbers(answer_number(a, "ordinal"), answer_number(b, "ordinal"));
    return order != 0 ? order : by_key(a, b, "instance");
}

static int by_state(const void *x, const void *y)
{
    int order = by_key(*(json_t *const *)x, *(json_t *const *)y, "state");
    return order != 0 ? order : by_name(x, y);
}

static int by_id(const void *x, const void *y)
{
    return compare_numbers(answer_number(*(json_t *const *)x, "id"),
                           answer_number(*(json_t *const *)y, "id"));
}

/* Orders workers by replica. Workers in no replica are last. */
static int by_replica(const void *x, const void *y)
{
    const json_t *a = json_object_get(*(json_t *const *)x, "group");
    const json_t *b = json_object_get(*(json_t *const *)y, "group");
    int order = json_is_number(b) - json_is_number(a);
    if (order == 0)
        order = compare_numbers(json_number_value(a), json_number_value(b));
    return order != 0 ? order : by_name(x, y);
}

static int by_step(const void *x, const void *y)
{
    int order = compare_numbers(answer_number(*(json_t *const *)y, "own_step_s"),
                                answer_number(*(json_t *const *)x, "own_step_s"));
    return order != 0 ? order : by_name(x, y);
}

static double gpu_number(const void *x, const char *key)
{
    return answer_number(json_object_get(*(json_t *const *)x, "gpu"), key);
}

static int by_gpu(const void *x, const void *y)
{
    int order = compare_numbers(gpu_number(y, "utilization"), gpu_number(x, "utilization"));
    return order != 0 ? order : by_name(x, y);
}

static int by_memory(const void *x, const void *y)
{
    int order =
        compare_numbers(gpu_number(y, "memory_used_bytes"), gpu_number(x, "memory_used_bytes"));
    return order != 0 ? order : by_name(x, y);
}

static void sort_array(json_t *array, int (*compare)(const void *, const void *), bool reversed)
{
    size_t n = json_array_size(array);
    if (n < 2)
        return;
    json_t **all = mem_array(n, sizeof(json_t *));
    for (size_t i = 0; i < n; i++)
        all[i] = json_incref(json_array_get(array, i));
    qsort(all, n, sizeof(json_t *), compare);
    json_array_clear(array);
    for (size_t i = 0; i < n; i++)
        json_array_append_new(array, all[reversed ? n - 1 - i : i]);
    mem_free(all);
}

static int (*const orders[STATUS_ORDER_COUNT])(const void *, const void *) = {
    [STATUS_BY_NAME] = by_name, [STATUS_BY_STATE] = by_state, [STATUS_BY_REPLICA] = by_replica,
    [STATUS_BY_STEP] = by_step, [STATUS_BY_GPU] = by_gpu,     [STATUS_BY_MEMORY] = by_memory,
};

void status_sort(json_t *status, enum status_order workers_by, bool reversed)
{
    sort_array(json_object_get(status, "nodes"), by_name, false);
    sort_array(json_object_get(status, "groups"), by_id, false);
    sort_array(json_object_get(status, "gateways"), by_name, false);
    sort_array(json_object_get(status, "workers"), orders[workers_by], reversed);
}

const char *status_order_name(enum status_order by)
{
    static const char *const names[STATUS_ORDER_COUNT] = {"name", "state", "replica",
                                                          "step", "GPU",   "memory"};
    return names[by];
}
