/* Changes one entry of the set of models for the admin API.
 * `models_text_edit` reads the text into a tree (`load`), sets or removes the entry (`change`) and
 * checks the whole text as a gateway would read it (`check_text`). store.c does that with a text in
 * Redis. `models_file_edit` locks the file of --models, and replaces it at once (`store`). The
 * gateway then reads the file like any other change. The file is never half written, two gateways
 * never edit at once, and a text is never taken for a number. Only the loop thread calls this; it
 * blocks for a short read and write. */
#include "gateway/models/edit.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/config/yaml_tree.h"
#include "gateway/models/file.h"

enum { LOCK_TRIES = 20, LOCK_PAUSE_US = 5000 };

/* Returns the node as JSON. A plain text stays a text as it was written, because a name such
 * as 1.10 is no number; only inside an option's mapping (`depth` 0) does JSON decide. */
static json_t *tree_of(const struct yaml_node *n, uint32_t depth)
{
    if (n->kind == YAML_KIND_TEXT)
        return yaml_node_is_null(n) ? json_null() : json_string(n->text);
    if (depth == 1 && n->kind == YAML_KIND_MAP) {
        struct strbuf json;
        strbuf_init(&json, 0);
        yaml_node_append_json(n, &json);
        json_t *out = json_loadb(json.ptr, json.len, JSON_REJECT_DUPLICATES, NULL);
        strbuf_fini(&json);
        return out;
    }
    const bool is_map = n->kind == YAML_KIND_MAP;
    json_t *out = is_map ? json_object() : json_array();
    for (const struct yaml_node *m = n->first; m && out; m = m->next) {
        json_t *v = tree_of(m, depth > 0 ? depth - 1 : 0);
        if (!v || (is_map ? json_object_set_new(out, m->key->text, v)
                          : json_array_append_new(out, v)) != 0) {
            json_decref(out);
            out = NULL;
        }
    }
    return out;
}

/* Reads the text as a tree of JSON: a mapping of lists of mappings, whose values may be lists. */
static enum status load(struct str text, json_t **out, struct error *err)
{
    enum { FILE_DEPTH = 4 };
    struct arena nodes;
    struct yaml_node *root = NULL;
    struct yaml_mark at;
    *out = NULL;
    if (text.len == 0) {
        *out = json_pack("{s:[]}", "models");
        return STATUS_OK;
    }
    arena_init(&nodes, 0);
    enum status s = yaml_tree_parse(text, &nodes, &root, &at, err);
    if (s == STATUS_OK && root)
        *out = tree_of(root, FILE_DEPTH);
    if (s == STATUS_OK && !json_is_object(*out))
        s = error_set(err, STATUS_INVALID,
                      "the set of models has a value that cannot be written as JSON");
    arena_fini(&nodes);
    return s;
}

/* Replaces the file at once. The new file has the old one's mode. */
static enum status store(const char *path, struct str text, struct error *err)
{
    char fresh[PATH_MAX + 16];
    struct stat old;
    const mode_t mode = stat(path, &old) == 0 ? old.st_mode & 0777 : 0644;
    snprintf(fresh, sizeof fresh, "%s.XXXXXX", path);
    const int fd = mkstemp(fresh);
    const bool ok = fd >= 0 && fchmod(fd, mode) == 0 &&
                    write(fd, text.ptr, text.len) == (ssize_t)text.len && fsync(fd) == 0;
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

/* Locks FILE.lock beside the file, so that of two gateways that share the file one edits after the
 * other. Returns the descriptor, or -1 after a tenth of a second, or when there can be no lock. */
static int lock(const char *path, struct error *err)
{
    char name[PATH_MAX + 16];
    snprintf(name, sizeof name, "%s.lock", path);
    const int fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    int e = fd < 0 ? errno : 0;
    for (int i = 0; fd >= 0 && i < LOCK_TRIES; i++) {
        if (flock(fd, LOCK_EX | LOCK_NB) == 0)
            return fd;
        e = errno;
        usleep(LOCK_PAUSE_US);
    }
    if (fd >= 0)
        close(fd);
    (void)error_set(err, STATUS_IO,
                    "the file of models %s cannot be locked for a change: %s. Try again, or change "
                    "it where it comes from",
                    path, strerror(e));
    return -1;
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
        s = store(path, strbuf_str(&next), err);
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
    const int fd = lock(real, err);
    if (fd < 0)
        return STATUS_IO;
    const enum status s = edit(real, list, name, item, err);
    close(fd);
    return s;
}
