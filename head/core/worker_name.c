#include "head/core/worker_name.h"

#include <inttypes.h>
#include <stdio.h>

enum { NAME_SHOWN = 64, LIST_BYTES = 320 };

static bool is_instance(const struct worker *w, struct str name)
{
    char text[17];
    snprintf(text, sizeof text, "%016" PRIx64, w->peer->instance);
    return str_eq_c(name, text);
}

static bool is_on_node(const struct worker *w, struct str name)
{
    return str_eq_c(name, w->peer->node);
}

/* Returns true when `name` is the worker's ordinal. Accepts "3" and "worker-3", but not
 * "0000000000000003", which is the form of an instance. */
static bool is_of_ordinal(const struct worker *w, struct str name)
{
    char text[32];
    snprintf(text, sizeof text, "worker-%d", w->desc.ordinal);
    return w->desc.ordinal >= 0 && (str_eq_c(name, text) || str_eq_c(name, text + 7));
}

/* Lists workers as "00000000000000aa (ordinal 0, n1), …", as many as fit. */
static void list(const struct cluster *c, bool (*is)(const struct worker *w, struct str name),
                 struct str name, char out[LIST_BYTES])
{
    size_t at = 0;
    out[0] = '\0';
    for (const struct worker *w = c->workers; w; w = w->next) {
        char one[120];
        if (!is(w, name))
            continue;
        int n = snprintf(one, sizeof one, "%s%016" PRIx64 " (ordinal %d, %s)", at > 0 ? ", " : "",
                         w->peer->instance, w->desc.ordinal, w->peer->node);
        if (at + (size_t)n + sizeof ", ..." > LIST_BYTES) {
            snprintf(out + at, LIST_BYTES - at, ", ...");
            return;
        }
        at += (size_t)snprintf(out + at, LIST_BYTES - at, "%s", one);
    }
}

enum status worker_by_name(const struct cluster *c, struct str name, struct worker **out,
                           struct error *err)
{
    static bool (*const ways[])(const struct worker *w, struct str name) = {is_instance, is_on_node,
                                                                            is_of_ordinal};
    /* a longer name belongs to no worker: a node has at most 64 bytes */
    bool is_long = name.len > NAME_SHOWN;
    *out = NULL;
    for (size_t i = 0; !is_long && i < sizeof ways / sizeof ways[0]; i++) {
        uint32_t n = 0;
        for (struct worker *w = c->workers; w; w = w->next) {
            if (ways[i](w, name)) {
                n++;
                *out = w;
            }
        }
        if (n > 1) {
            char all[LIST_BYTES];
            list(c, ways[i], name, all);
            *out = NULL;
            return error_set(err, STATUS_INVALID,
                             "%u workers match \"" STR_FMT "\": name one of %s", n, STR_ARG(name),
                             all);
        }
        if (n == 1)
            return STATUS_OK;
    }
    return error_set(
        err, STATUS_NOT_FOUND,
        "no connected worker matches \"" STR_FMT
        "\": name a worker by its 16 hex digits, by its ordinal (\"3\" or \"worker-3\"), or by its "
        "node if the node has one worker. `cox status` lists them",
        is_long ? 3 : (int)name.len, is_long ? "..." : name.ptr);
}
