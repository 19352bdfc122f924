/* Changes one entry of the set of models for the admin API.
 * `models_text_edit` reads the text into a tree (`load`), sets or removes the entry (`change`) and
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

/* Sets or removes the item in the list. Returns false when there is no item to remove. */
static bool change(json_t *items, struct str name, const json_t *item)
{
    size_t i = 0;
    for (; i < json_array_size(items); i++) {
        const json_t *now = json_object_get(json_array_get(items, i), "name");
        if (json_is_string(now) && str_eq_c(name, json_string_value(now)))
            break;
    }
    if (!item)
        return json_array_remove(items, i) == 0;
    json_t *own = json_object(), *copy = json_deep_copy(item);
    json_object_set_new(own, "name", json_stringn(name.ptr, name.len));
    json_object_del(copy, "name");
    json_object_update(own, copy);
    json_decref(copy);
    return (i < json_array_size(items) ? json_array_set_new(items, i, own)
                                       : json_array_append_new(items, own)) == 0;
}

/* Checks the options of the changed entry, as the gateway would read them. */
static enum status check_options(const struct models_file *f, struct str name, struct error *err)
{
    for (uint32_t i = 0; i < f->n_entries; i++) {
        struct gateway_config config = {0};
        struct config_result owned = {0};
        if (!str_eq_c(name, f->entries[i].name))
            continue;
        TRY(models_file_options(&f->entries[i], &config, &owned, err));
        config_fini(&owned);
    }
    return STATUS_OK;
}

static enum status check_text(const char *text, struct str changed, struct error *err)
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

enum status models_text_edit(struct str text, const char *list, struct str name, const json_t *item,
                             struct strbuf *out, struct error *err)
{
    json_t *root;
    enum status s = load(text, &root, err);
    const json_t *owner = json_object_get(root, "managed_by");
    if (s == STATUS_OK && json_is_string(owner))
        s = error_set(err, STATUS_EXISTS,
                      "%s owns the set of models: change the models with its commands",
                      json_string_value(owner));
    json_t *items = json_object_get(root, list);
    if (s == STATUS_OK && !items) {
        items = json_array();
        json_object_set_new(root, list, items);
    }
    if (s == STATUS_OK && !change(items, name, item))
        s = error_set(err, STATUS_NOT_FOUND, "the set of models has no such name");
    char *next = s == STATUS_OK ? json_dumps(root, JSON_INDENT(1) | JSON_PRESERVE_ORDER) : NULL;
    if (s == STATUS_OK && !next)
        s = error_set(err, STATUS_INVALID, "the change cannot be written as JSON");
    if (s == STATUS_OK)
        s = check_text(next, name, err);
    if (s == STATUS_OK)
        strbuf_append_c(out, next);
    free(next);
    json_decref(root);
    return s;
}

static enum status edit(const char *path, const char *list, struct str name, const json_t *item,
                        struct error *err)
{
    struct strbuf text, next;
    strbuf_init(&text, MODELS_FILE_MAX);
    strbuf_init(&next, MODELS_FILE_MAX);
    enum status s = models_file_text(path, &text, err);
    if (s == STATUS_OK)
        s = models_text_edit(strbuf_str(&text), list, name, item, &next, err);
    if (s == STATUS_OK)
        s = yaml_file_store(path, next.ptr, 0644, err);
    strbuf_fini(&text);
    strbuf_fini(&next);
    return s;
}

enum status models_file_edit(const char *path, const char *list, struct str name,
                             const json_t *item, struct error *err)
{
    char real[PATH_MAX]; /* the file itself, if the path is a link */
    if (!realpath(path, real))
        return error_set(err, STATUS_IO, "the file of models %s cannot be found: %s", path,
                         strerror(errno));
    const int fd = yaml_file_lock(real, err);
    if (fd < 0)
        return STATUS_IO;
    const enum status s = edit(real, list, name, item, err);
    close(fd);
    return s;
}
