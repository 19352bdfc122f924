#include "cli/up/set/links.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* the gateway has the same limits for its file */
enum { TARGETS_MAX = 16, WEIGHT_MAX = 1000000, REQUESTS_MAX = 1000000, ROUTES_MAX = 256 };
enum { NAME_MAX_BYTES = 255, NUMBER_DIGITS = 8 };

struct check {
    const struct up_set *set;
    const struct yaml_node *models;
    const char *file;
    struct error *err;
};

static enum status fault(const struct check *c, const struct yaml_node *at, const char *fmt, ...)
    PRINTF_LIKE(3, 4);
static enum status fault(const struct check *c, const struct yaml_node *at, const char *fmt, ...)
{
    char why[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(why, sizeof why, fmt, ap);
    va_end(ap);
    if (!c->file)
        return error_set(c->err, STATUS_INVALID, "%s", why);
    return error_set(c->err, STATUS_INVALID, "%s:%u: %s", c->file, at->at.line, why);
}

static const struct yaml_node *member(const struct yaml_node *map, const char *key)
{
    for (const struct yaml_node *m = map->kind == YAML_KIND_MAP ? map->first : NULL; m; m = m->next)
        if (strcmp(m->key->text, key) == 0)
            return m;
    return NULL;
}

bool set_links_is_key(const char *key)
{
    return strcmp(key, "fallback") == 0 || strcmp(key, "max_requests") == 0;
}

static bool is_word(const struct yaml_node *n)
{
    return n && n->kind == YAML_KIND_TEXT && n->text[0] && !yaml_node_is_null(n);
}

/* Reads a whole number. Returns -1 for any other value. */
static long number_of(const struct yaml_node *n)
{
    if (!is_word(n) || strlen(n->text) > NUMBER_DIGITS ||
        strspn(n->text, "0123456789") != strlen(n->text))
        return -1;
    return strtol(n->text, NULL, 10);
}

/* Returns the number of the model with the name; n = there is none. */
static uint32_t find(const struct check *c, const char *name)
{
    uint32_t i = 0;
    while (i < c->set->n && strcmp(c->set->models[i].name, name) != 0)
        i++;
    return i;
}

static enum status check_model_name(const struct check *c, const struct yaml_node *n,
                                    const char *of)
{
    if (!is_word(n))
        return fault(c, n, "`%s` must be the name of a model", of);
    if (find(c, n->text) == c->set->n)
        return fault(c, n, "`%s` names %.80s, but the file has no model of this name", of, n->text);
    return STATUS_OK;
}

/* ---- models ---- */

static const struct yaml_node *entry_of(const struct check *c, uint32_t i)
{
    const struct yaml_node *n = c->models->first;
    while (i-- > 0)
        n = n->next;
    return n;
}

/* Follows the fallbacks of a model, whose names exist. They end after n steps at most. */
static enum status check_circle(const struct check *c, uint32_t i, const struct yaml_node *at)
{
    uint32_t k = i;
    for (uint32_t step = 0; step <= c->set->n; step++) {
        const struct yaml_node *next = member(entry_of(c, k), "fallback");
        if (!next)
            return STATUS_OK;
        k = find(c, next->text);
        if (k == i)
            return fault(c, at,
                         "the fallbacks of %.80s lead back to itself. Remove one of them, because "
                         "none of the models would answer",
                         c->set->models[i].name);
    }
    return STATUS_OK; /* another model has the circle, and its own check names it */
}

static enum status check_models(const struct check *c)
{
    const struct yaml_node *v;
    for (uint32_t i = 0; i < c->set->n; i++) {
        const struct yaml_node *entry = entry_of(c, i);
        v = member(entry, "max_requests");
        if (v && (number_of(v) < 1 || number_of(v) > REQUESTS_MAX))
            return fault(c, v, "`max_requests` must be a whole number from 1 to %d", REQUESTS_MAX);
        if ((v = member(entry, "fallback")))
            TRY(check_model_name(c, v, "fallback"));
    }
    for (uint32_t i = 0; i < c->set->n; i++)
        if ((v = member(entry_of(c, i), "fallback")))
            TRY(check_circle(c, i, v));
    return STATUS_OK;
}

/* ---- routes ---- */

static enum status check_targets(const struct check *c, const struct yaml_node *list)
{
    long sum = 0;
    if (list->kind != YAML_KIND_LIST || list->n == 0 || list->n > TARGETS_MAX)
        return fault(c, list, "`targets` must be a list of 1 to %d models", TARGETS_MAX);
    for (const struct yaml_node *t = list->first; t; t = t->next) {
        const struct yaml_node *model = member(t, "model"), *weight = member(t, "weight");
        if (!model || t->n != 1u + (weight != NULL))
            return fault(c, t, "a target has `model`, and may have `weight`");
        TRY(check_model_name(c, model, "model"));
        if (weight && (number_of(weight) < 0 || number_of(weight) > WEIGHT_MAX))
            return fault(c, weight, "`weight` must be a whole number from 0 to %d", WEIGHT_MAX);
        sum += weight ? number_of(weight) : 1;
    }
    return sum > 0 ? STATUS_OK : fault(c, list, "at least one target needs a weight above 0");
}

static enum status check_route(const struct check *c, const struct yaml_node *routes,
                               const struct yaml_node *route)
{
    const struct yaml_node *name = member(route, "name"), *targets = member(route, "targets");
    if (!name || !targets || !is_word(name))
        return fault(c, route, "a route must be a mapping with `name` and `targets`");
    if (strlen(name->text) > NAME_MAX_BYTES)
        return fault(c, name, "the name of a route has at most %d bytes", NAME_MAX_BYTES);
    for (const char *t = name->text; *t; t++)
        if ((unsigned char)*t < 0x20 || *t == 0x7F)
            return fault(c, name, "the name of a route has a control character");
    for (const struct yaml_node *m = route->first; m; m = m->next)
        if (strcmp(m->key->text, "mirror") == 0)
            TRY(check_model_name(c, m, "mirror"));
        else if (m != name && m != targets)
            return fault(c, m->key, "unknown key `%.60s`; a route has name, targets and mirror",
                         m->key->text);
    for (const struct yaml_node *other = routes->first; other != route; other = other->next)
        if (strcmp(member(other, "name")->text, name->text) == 0)
            return fault(c, name, "two routes have the name %.80s", name->text);
    return check_targets(c, targets);
}

enum status set_links_check(const struct up_set *set, const struct yaml_node *models,
                            const struct yaml_node *routes, const char *file, struct error *err)
{
    const struct check c = {set, models, file, err};
    TRY(check_models(&c));
    if (routes && (routes->kind != YAML_KIND_LIST || routes->n > ROUTES_MAX))
        return fault(&c, routes, "`routes` must be a list of at most %d routes", ROUTES_MAX);
    for (const struct yaml_node *r = routes ? routes->first : NULL; r; r = r->next)
        TRY(check_route(&c, routes, r));
    return STATUS_OK;
}
