#include "common/json/yaml_file.h"

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

enum status yaml_file_tree(struct str text, json_t **owned, struct error *err)
{
    enum { FILE_DEPTH = 4 };
    struct arena nodes;
    struct yaml_node *root = NULL;
    struct yaml_mark at;
    *owned = NULL;
    arena_init(&nodes, 0);
    enum status s = yaml_tree_parse(text, &nodes, &root, &at, err);
    if (s == STATUS_OK && root)
        *owned = tree_of(root, FILE_DEPTH);
    if (s == STATUS_OK && !json_is_object(*owned))
        s = error_set(err, STATUS_INVALID,
                      "the file of models has a value that cannot be written as JSON");
    arena_fini(&nodes);
    return s;
}

/* Returns the file that a link leads to, because a change must not replace the link. `out` holds
 * its path. */
static const char *follow(const char *path, char out[PATH_MAX])
{
    return realpath(path, out) ? out : path;
}

enum status yaml_file_store(const char *path, const char *text, mode_t mode, struct error *err)
{
    char target[PATH_MAX], fresh[PATH_MAX + 16];
    struct stat old;
    path = follow(path, target);
    mode = stat(path, &old) == 0 ? old.st_mode & 0777 : mode;
    const size_t n = strlen(text);
    snprintf(fresh, sizeof fresh, "%s.XXXXXX", path);
    const int fd = mkstemp(fresh);
    const bool ok =
        fd >= 0 && fchmod(fd, mode) == 0 && write(fd, text, n) == (ssize_t)n && fsync(fd) == 0;
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

int yaml_file_lock(const char *path, struct error *err)
{
    char target[PATH_MAX], name[PATH_MAX + 16];
    path = follow(path, target);
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
