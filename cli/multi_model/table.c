/* Keeps the table of loaded models: names, states, GPUs and ports.
 * process.c adds and removes rows. serve.c finds models by name and prints lists. A row's slot
 * gives its ports.
 * Invariants: a slot is used by one model at a time, so port ranges never overlap. In the same
 * way, a bit of `gpus` belongs to one model at a time. Names and URLs are checked before a row
 * is made. The functions are pure: the only state is `struct model_table`. */
#include "cli/multi_model/table.h"

#include <stdio.h>
#include <string.h>

#define NAME_CHARACTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."

enum status model_table_init(struct model_table *t, uint32_t n_gpus, const char *ports,
                             struct error *err)
{
    const char *text = ports ? ports : "29000-29999", *dash = strchr(text, '-');
    uint64_t low = 0, high = 0;
    *t = (struct model_table){.n_gpus = n_gpus < MODEL_MAX_GPUS ? n_gpus : MODEL_MAX_GPUS};
    if (!dash || str_to_u64((struct str){text, (size_t)(dash - text)}, &low) != STATUS_OK ||
        str_to_u64(str_from(dash + 1), &high) != STATUS_OK || low == 0 || high > 65535 ||
        high < low + MODEL_PORTS - 1)
        return error_set(
            err, STATUS_INVALID,
            "SAGEMAKER_SAFE_PORT_RANGE=%s is invalid: give LOW-HIGH with at least %d ports", text,
            MODEL_PORTS);
    uint64_t n = (high - low + 1) / MODEL_PORTS;
    t->first_port = (uint16_t)low;
    t->n_slots = (uint16_t)(n < MODEL_TABLE_MAX ? n : MODEL_TABLE_MAX);
    return STATUS_OK;
}

bool model_table_has_port(const struct model_table *t, uint64_t port)
{
    return port >= t->first_port &&
           port < (uint64_t)t->first_port + (uint64_t)t->n_slots * MODEL_PORTS;
}

struct loaded_model *model_table_find(struct model_table *t, struct str name)
{
    for (uint32_t i = 0; i < t->n_slots; i++)
        if (t->models[i].used && str_eq_c(name, t->models[i].name))
            return &t->models[i];
    return NULL;
}

struct loaded_model *model_table_only(struct model_table *t)
{
    struct loaded_model *found = NULL;
    for (uint32_t i = 0; i < t->n_slots; i++) {
        struct loaded_model *m = &t->models[i];
        if (!m->used || m->state > MODEL_READY)
            continue;
        if (found)
            return NULL;
        found = m;
    }
    return found;
}

static uint64_t taken_gpus(const struct model_table *t)
{
    uint64_t taken = 0;
    for (uint32_t i = 0; i < t->n_slots; i++)
        if (t->models[i].used)
            taken |= t->models[i].gpus;
    return taken;
}

uint32_t model_table_free_gpus(const struct model_table *t)
{
    return t->n_gpus - (uint32_t)__builtin_popcountll(taken_gpus(t));
}

static bool is_name(struct str name)
{
    char plain[MODEL_NAME_MAX + 1];
    if (name.len == 0 || name.len > MODEL_NAME_MAX)
        return false;
    memcpy(plain, name.ptr, name.len);
    plain[name.len] = '\0';
    return strspn(plain, NAME_CHARACTERS) == name.len;
}

static enum status check(struct model_table *t, struct str name, struct str url, uint32_t n_gpus,
                         struct error *err)
{
    if (!is_name(name))
        return error_set(
            err, STATUS_INVALID,
            "model_name must have 1 to %d characters: letters, digits, '-', '_' and '.'",
            MODEL_NAME_MAX);
    if (url.len == 0 || url.len > MODEL_URL_MAX || memchr(url.ptr, '\0', url.len))
        return error_set(err, STATUS_INVALID, "url must be the path of a model folder");
    if (model_table_find(t, name))
        return error_set(err, STATUS_EXISTS, "Model \"" STR_FMT "\" is already registered.",
                         STR_ARG(name));
    if (n_gpus > model_table_free_gpus(t))
        return error_set(err, STATUS_LIMIT,
                         "not enough GPUs for the model: it needs %u, but only %u are free. Unload "
                         "another model first",
                         n_gpus, model_table_free_gpus(t));
    return STATUS_OK;
}

enum status model_table_add(struct model_table *t, struct str name, struct str url, uint32_t n_gpus,
                            struct loaded_model **out, struct error *err)
{
    uint64_t taken = taken_gpus(t), mine = 0;
    uint32_t slot = 0;
    TRY(check(t, name, url, n_gpus, err));
    while (slot < t->n_slots && t->models[slot].used)
        slot++;
    if (slot == t->n_slots)
        return error_set(err, STATUS_LIMIT,
                         "cannot load another model: the ports for %u models are all in use. "
                         "Unload a model, or use a larger SAGEMAKER_SAFE_PORT_RANGE",
                         t->n_slots);
    for (uint32_t i = 0; i < t->n_gpus && n_gpus > 0; i++)
        if (!(taken >> i & 1)) {
            mine |= UINT64_C(1) << i;
            n_gpus--;
        }
    struct loaded_model *m = &t->models[slot];
    *m = (struct loaded_model){
        .used = true, .gpus = mine, .port = (uint16_t)(t->first_port + slot * MODEL_PORTS)};
    memcpy(m->name, name.ptr, name.len);
    memcpy(m->url, url.ptr, url.len);
    *out = m;
    return STATUS_OK;
}

void model_table_remove(struct loaded_model *m)
{
    m->used = false;
}

void model_table_devices(const struct loaded_model *m, struct strbuf *out)
{
    bool any = false;
    for (uint32_t i = 0; i < MODEL_MAX_GPUS; i++)
        if (m->gpus >> i & 1) {
            strbuf_printf(out, "%s%u", any ? "," : "", i);
            any = true;
        }
}

static bool has_dots(const char *path)
{
    for (const char *at = path; (at = strchr(at, '/')); at++) {
        size_t n = strcspn(at + 1, "/");
        if ((n == 1 && at[1] == '.') || (n == 2 && at[1] == '.' && at[2] == '.'))
            return true;
    }
    return false;
}

bool model_url_is_below(const char *url, const char *root)
{
    size_t n = strlen(root);
    while (n > 1 && root[n - 1] == '/')
        n--;
    return *url == '/' && !has_dots(url) && strncmp(url, root, n) == 0 && url[n] == '/' &&
           url[n + 1];
}

/* ---- answers ---- */

static const char *state_name(const struct loaded_model *m)
{
    static const char *const names[] = {"PENDING", "Healthy", "FAILED", "STOPPING"};
    return names[m->state];
}

void model_table_describe(const struct loaded_model *m, struct strbuf *out)
{
    strbuf_append_c(out, "{\"modelName\":");
    strbuf_append_json(out, str_from(m->name));
    strbuf_append_c(out, ",\"modelUrl\":");
    strbuf_append_json(out, str_from(m->url));
    strbuf_printf(out, ",\"status\":\"%s\"}", state_name(m));
}

void model_table_list(const struct model_table *t, uint32_t from, uint32_t limit,
                      struct strbuf *out)
{
    uint32_t n = 0, next = 0;
    strbuf_append_c(out, "{\"models\":[");
    for (uint32_t i = from; i < t->n_slots && !next; i++) {
        if (!t->models[i].used)
            continue;
        if (n == limit) {
            next = i;
            break;
        }
        strbuf_append_c(out, n++ ? "," : "");
        model_table_describe(&t->models[i], out);
    }
    strbuf_append_c(out, "]");
    if (next)
        strbuf_printf(out, ",\"nextPageToken\":\"%u\"", next);
    strbuf_append_c(out, "}\n");
}

bool model_table_ping(const struct model_table *t, struct strbuf *out)
{
    bool any = false, fine = true;
    strbuf_append_c(out, "{");
    for (uint32_t i = 0; i < t->n_slots; i++) {
        const struct loaded_model *m = &t->models[i];
        if (!m->used)
            continue;
        strbuf_append_c(out, any ? ",\n  " : "\n  ");
        strbuf_append_json(out, str_from(m->name));
        strbuf_printf(out, ": {\n    \"status\": \"%s\"\n  }", state_name(m));
        any = true;
        fine = fine && m->state != MODEL_FAILED;
    }
    strbuf_append_c(out, any ? "\n}\n" : "}\n");
    return fine;
}
