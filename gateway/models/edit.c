/* Changes one entry of the set of models for the admin API.
 * `models_text_edit` reads the text into a tree (`load`), changes the entry (`change`) and
 * checks the whole text as a gateway would read it (`check_text`). store.c does that with a text in
 * Redis. `models_file_edit` locks the file of --models, and replaces it at once. The gateway then
 * reads the file like any other change. The file is never half written, two programs never edit at
 * once, and a text is never taken for a number. Only the loop thread calls this; it blocks for a
 * short read and write. */
#include "gateway/models/edit.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/json/aliases.h"
#include "common/json/yaml_file.h"
#include "gateway/models/file.h"

/* Reads the text as a tree of JSON. An empty text is an empty set. */
static enum status load(struct str text, json_t **out, struct error *err)
{
    *out = NULL;
    if (text.len > 0)
        return yaml_file_tree(text, out, err);
    *out = json_pack("{s:[]}", "models");
    return STATUS_OK;
}

static size_t find(const json_t *items, const char *name)
{
    size_t i = 0;
    for (; i < json_array_size(items); i++) {
        const char *now = json_string_value(json_object_get(json_array_get(items, i), "name"));
        if (now && strcmp(now, name) == 0)
            break;
    }
    return i;
}

static enum status set(json_t *items, size_t i, const struct models_edit *e, struct error *err)
{
    json_t *own = json_object(), *copy = json_deep_copy(e->item);
    json_object_set_new(own, "name", json_string(e->name));
    json_object_del(copy, "name");
    json_object_update(own, copy);
    json_decref(copy);
    if ((i < json_array_size(items) ? json_array_set_new(items, i, own)
                                    : json_array_append_new(items, own)) == 0)
        return STATUS_OK;
    return error_set(err, STATUS_INVALID, "the change cannot be written as JSON");
}

/* Carries out the edit in the list. */
static enum status change(json_t *items, const struct models_edit *e, struct error *err)
{
    const size_t i = find(items, e->name);
    if (e->kind == MODELS_SET)
        return set(items, i, e, err);
    if (i == json_array_size(items))
        return error_set(err, STATUS_NOT_FOUND, "the set of models has no such name");
    if (e->kind == MODELS_ALIASES)
        return json_aliases_change(json_array_get(items, i), e->name,
                                   json_object_get(e->item, "add"),
                                   json_object_get(e->item, "remove"), err);
    json_array_remove(items, i);
    return STATUS_OK;
}

/* Checks the options of the changed entry, as the gateway would read them. */
static enum status check_options(const struct models_file *f, const char *name, struct error *err)
{
    for (uint32_t i = 0; i < f->n_entries; i++) {
        struct gateway_config config = {0};
        struct config_result owned = {0};
        if (strcmp(name, f->entries[i].name) != 0)
            continue;
        TRY(models_file_options(&f->entries[i], &config, &owned, err));
        config_fini(&owned);
    }
    return STATUS_OK;
}

static enum status check_text(const char *text, const char *changed, struct error *err)
{
    struct models_file f;
    if (strlen(text) >= MODELS_FILE_MAX)
        return error_set(err, STATUS_INVALID, "the set of models would be too large");
    enum status s = models_file_parse(str_from(text), "the set of models", &f, err);
    if (s == STATUS_OK)
        s = check_options(&f, changed, err);
    models_file_fini(&f);
    return s;
}

enum status models_text_edit(struct str text, const struct models_edit *e, struct strbuf *out,
                             struct error *err)
{
    json_t *root;
    enum status s = load(text, &root, err);
    const json_t *owner = json_object_get(root, "managed_by");
    if (s == STATUS_OK && json_is_string(owner))
        s = error_set(err, STATUS_EXISTS,
                      "%s owns the set of models: change the models with its commands",
                      json_string_value(owner));
    json_t *items = json_object_get(root, e->list);
    if (s == STATUS_OK && !items) {
        items = json_array();
        json_object_set_new(root, e->list, items);
    }
    if (s == STATUS_OK)
        s = change(items, e, err);
    char *next = s == STATUS_OK ? json_dumps(root, JSON_INDENT(1) | JSON_PRESERVE_ORDER) : NULL;
    if (s == STATUS_OK && !next)
        s = error_set(err, STATUS_INVALID, "the change cannot be written as JSON");
    if (s == STATUS_OK)
        s = check_text(next, e->name, err);
    if (s == STATUS_OK)
        strbuf_append_c(out, next);
    free(next);
    json_decref(root);
    return s;
}

static enum status edit(const char *path, const struct models_edit *e, struct error *err)
{
    struct strbuf text, next;
    strbuf_init(&text, MODELS_FILE_MAX);
    strbuf_init(&next, MODELS_FILE_MAX);
    enum status s = models_file_text(path, &text, err);
    if (s == STATUS_OK)
        s = models_text_edit(strbuf_str(&text), e, &next, err);
    if (s == STATUS_OK)
        s = yaml_file_store(path, next.ptr, 0644, err);
    strbuf_fini(&text);
    strbuf_fini(&next);
    return s;
}

enum status models_file_edit(const char *path, const struct models_edit *e, struct error *err)
{
    char real[PATH_MAX]; /* the file itself, if the path is a link */
    if (!realpath(path, real))
        return error_set(err, STATUS_IO, "the file of models %s cannot be found: %s", path,
                         strerror(errno));
    const int fd = yaml_file_lock(real, err);
    if (fd < 0)
        return STATUS_IO;
    const enum status s = edit(real, e, err);
    close(fd);
    return s;
}
