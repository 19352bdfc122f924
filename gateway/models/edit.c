#include "gateway/models/edit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/config/yaml_tree.h"
#include "gateway/models/file.h"

/* Reads the file as a tree of JSON. */
static enum status load(const char *path, json_t **out, struct error *err)
{
    struct strbuf text, json;
    struct arena nodes;
    struct yaml_node *root;
    struct yaml_mark at;
    *out = NULL;
    strbuf_init(&text, MODELS_FILE_MAX);
    strbuf_init(&json, 0);
    arena_init(&nodes, 0);
    enum status s = models_file_text(path, &text, err);
    if (s == STATUS_OK)
        s = yaml_tree_parse(strbuf_str(&text), &nodes, &root, &at, err);
    if (s == STATUS_OK && root) {
        yaml_node_append_json(root, &json);
        *out = json_loadb(json.ptr, json.len, JSON_REJECT_DUPLICATES, NULL);
    }
    if (s == STATUS_OK && !json_is_object(*out))
        s = error_set(err, STATUS_INVALID, "the file of models is not a mapping");
    arena_fini(&nodes);
    strbuf_fini(&text);
    strbuf_fini(&json);
    return s;
}

/* Replaces the file at once. The new file has the old one's mode. */
static enum status store(const char *path, const char *text, struct error *err)
{
    char fresh[4096 + 16];
    struct stat old;
    const mode_t mode = stat(path, &old) == 0 ? old.st_mode & 0777 : 0644;
    const size_t n = strlen(text);
    if ((size_t)snprintf(fresh, sizeof fresh, "%s.XXXXXX", path) >= sizeof fresh)
        return error_set(err, STATUS_IO, "the path of the file of models is too long");
    const int fd = mkstemp(fresh);
    const bool ok = fd >= 0 && fchmod(fd, mode) == 0 && write(fd, text, n) == (ssize_t)n;
    const bool moved = ok && rename(fresh, path) == 0;
    const int e = errno;
    if (fd >= 0)
        close(fd);
    if (fd >= 0 && !moved)
        unlink(fresh);
    if (moved)
        return STATUS_OK;
    return error_set(err, STATUS_IO,
                     "the file of models %s cannot be written: %s. Change it where it comes from, "
                     "such as the chart's values",
                     path, strerror(e));
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

static enum status check_and_store(const char *path, const json_t *root, struct error *err)
{
    struct models_file f;
    char *text = json_dumps(root, JSON_INDENT(1) | JSON_PRESERVE_ORDER);
    if (!text)
        return error_set(err, STATUS_INVALID, "the change cannot be written as JSON");
    enum status s = strlen(text) <= MODELS_FILE_MAX
                        ? models_file_parse(str_from(text), "the file of models", &f, err)
                        : error_set(err, STATUS_INVALID, "the file of models would be too large");
    if (strlen(text) <= MODELS_FILE_MAX)
        models_file_fini(&f);
    if (s == STATUS_OK)
        s = store(path, text, err);
    free(text);
    return s;
}

enum status models_file_edit(const char *path, const char *list, struct str name,
                             const json_t *item, struct error *err)
{
    json_t *root;
    enum status s = load(path, &root, err);
    const json_t *owner = json_object_get(root, "managed_by");
    if (s == STATUS_OK && json_is_string(owner))
        s = error_set(err, STATUS_EXISTS,
                      "%s owns the file of models: change the models with its commands",
                      json_string_value(owner));
    json_t *items = json_object_get(root, list);
    if (s == STATUS_OK && !items) {
        items = json_array();
        json_object_set_new(root, list, items);
    }
    if (s == STATUS_OK && !change(items, name, item))
        s = error_set(err, STATUS_NOT_FOUND, "the file of models has no such name");
    if (s == STATUS_OK)
        s = check_and_store(path, root, err);
    json_decref(root);
    return s;
}
