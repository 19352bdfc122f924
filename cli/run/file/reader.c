#include "cli/run/file/reader.h"

#include <stdio.h>
#include <string.h>

#include "cli/run/file/problems.h"
#include "common/base/mem.h"
#include "common/config/distance.h"

static const char *nearest(const char *name, const struct run_key *keys, size_t n_keys)
{
    const char *best = NULL;
    size_t best_distance = 2 + strlen(name) / 6 + 1;
    for (size_t i = 0; i < n_keys; i++) {
        size_t d = str_distance(str_from(name), str_from(keys[i].name));
        if (d < best_distance) {
            best_distance = d;
            best = keys[i].name;
        }
    }
    return best;
}

static void unknown(struct run_reader *r, const struct yaml_node *key, const char *what,
                    const struct run_key *keys, size_t n_keys)
{
    char all[256];
    size_t n = 0;
    const char *near = nearest(key->text, keys, n_keys);
    if (near) {
        run_problem(r->p, key->at, "unknown key \"%.60s\" in %s; did you mean `%s`?", key->text,
                    what, near);
        return;
    }
    for (size_t i = 0; i < n_keys && n < sizeof all; i++)
        n += (size_t)snprintf(all + n, sizeof all - n, "%s%s", i ? ", " : "", keys[i].name);
    run_problem(r->p, key->at, "unknown key \"%.60s\" in %s. Allowed keys: %s", key->text, what,
                all);
}

void run_read_map(struct run_reader *r, const struct yaml_node *map, const char *what,
                  const struct run_key *keys, size_t n_keys, void *ctx)
{
    if (map->kind != YAML_KIND_MAP) {
        run_problem(r->p, map->at, "%s must be a mapping of `key: value` lines", what);
        return;
    }
    for (const struct yaml_node *v = map->first; v; v = v->next) {
        size_t i = 0;
        while (i < n_keys && strcmp(keys[i].name, v->key->text) != 0)
            i++;
        if (i == n_keys)
            unknown(r, v->key, what, keys, n_keys);
        else if (!yaml_node_is_null(v)) /* a key without a value counts as missing */
            keys[i].read(r, v, ctx);
    }
}

const char *run_read_text(struct run_reader *r, const struct yaml_node *v, const char *what)
{
    if (v->kind == YAML_KIND_TEXT && v->text[0])
        return v->text;
    run_problem(r->p, v->at, "%s must be a string%s", what,
                v->kind == YAML_KIND_TEXT ? " that is not empty" : "");
    return NULL;
}

bool run_read_int(struct run_reader *r, const struct yaml_node *v, const char *what, int64_t min,
                  int64_t max, int64_t *out)
{
    int64_t n = 0;
    if (v->kind == YAML_KIND_TEXT && str_to_i64(str_from(v->text), &n) == STATUS_OK && n >= min &&
        n <= max) {
        *out = n;
        return true;
    }
    run_problem(r->p, v->at, "%s must be a whole number from %lld to %lld", what, (long long)min,
                (long long)max);
    return false;
}

/* Ends the program when p is NULL. The arena has no limit, so NULL means out of memory, as in
 * mem_alloc. */
static void *or_abort(void *p)
{
    return p ? p : mem_array(SIZE_MAX, 2);
}

void *run_list_add(struct arena *arena, void *items, size_t *n, size_t *cap, size_t size)
{
    char *at; /* memcpy copies the pointer, since its type is unknown here */
    memcpy(&at, items, sizeof at);
    /* the old array stays on the arena; the file's size bounds the wasted memory */
    if (*n == *cap) {
        size_t more = *cap ? *cap * 2 : 4;
        char *grown = or_abort(arena_try_array(arena, more, size));
        if (*n)
            memcpy(grown, at, *n * size);
        at = grown;
        *cap = more;
        memcpy(items, &at, sizeof at);
    }
    return at + (*n)++ * size;
}

const char *run_print(struct run_reader *r, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    char *s = or_abort(arena_try_alloc(r->arena, (size_t)(n < 0 ? 0 : n) + 1));
    vsnprintf(s, (size_t)(n < 0 ? 0 : n) + 1, fmt, again);
    va_end(again);
    return s;
}
