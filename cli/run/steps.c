/* Implements the steps of a keeper: imports, model, volumes, exports and the environment.
 * keeper.c calls the functions in order. Each function runs child processes through `run_step`
 * (step.h), or makes folders and links below the run's root.
 * Invariants: a place is created below `k->root` by `run_place`. An imported repository runs no
 * code: no hooks, and only known transports. Kept folders lie below RUNS/volumes. `env` is built
 * once and lives on the keeper's arena. Only the keeper's thread calls these functions. */
#include "cli/run/steps.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/run/file/file.h"
#include "cli/run/file/places.h"
#include "cli/run/step.h"
#include "common/base/mem.h"
#include "common/model/info/ref.h"

extern char **environ;

/* ---- places ---- */

static enum status make_folders(const char *path, const char *below, bool with_itself,
                                struct error *err)
{
    char at[RUN_PATH_BYTES];
    snprintf(at, sizeof at, "%s", path);
    for (char *slash = at + strlen(below);; slash++) {
        char was = *slash;
        bool is_last = was == '\0';
        if (!is_last && was != '/')
            continue;
        *slash = '\0';
        if ((!is_last || with_itself) && mkdir(at, 0777) != 0 && errno != EEXIST)
            return error_set(err, STATUS_IO, "cannot create the folder %s: %s", at,
                             strerror(errno));
        *slash = was;
        if (is_last)
            return STATUS_OK;
    }
}

enum status run_place(struct run_keeper *k, const char *path, bool with_itself,
                      char out[RUN_PATH_BYTES], struct error *err)
{
    const char *tail = strcmp(path, "/") == 0 ? "" : path;
    int n = snprintf(out, RUN_PATH_BYTES, "%s%s", k->root, tail);
    if (n < 0 || n >= RUN_PATH_BYTES)
        return error_set(err, STATUS_INVALID,
                         "the path %s in the run's folder is too long. Choose a shorter path",
                         path);
    return make_folders(out, k->root, with_itself || !tail[0], err);
}

/* ---- import ---- */

static enum status import_git(struct run_keeper *k, const struct run_import *im, const char *to,
                              struct error *err)
{
    /* Only files are imported from a repository: no hook of the repository runs, and no
     * transport may start a program. */
    const char *const init[] = {"git", "init", "-q", "--", to, NULL};
    const char *const fetch[] = {
        "git", "-c",     "protocol.ext.allow=never", "fetch", "-q", "--depth", "1", "--no-tags",
        "--",  im->what, im->ref ? im->ref : "HEAD", NULL};
    const char *const checkout[] = {
        "git", "-c", "advice.detachedHead=false", "checkout", "-q", "--detach", "FETCH_HEAD", NULL};
    TRY(run_step(k, "git init", init, NULL, -1, err));
    TRY(run_step(k, "git fetch", fetch, to, -1, err));
    return run_step(k, "git checkout", checkout, to, -1, err);
}

/* Reads the first line of the output of `cox pull`, which is the model's path. */
static enum status read_pulled(int fd, char *out, size_t size, struct error *err)
{
    ssize_t n = pread(fd, out, size - 1, 0);
    out[n > 0 ? n : 0] = '\0';
    out[strcspn(out, "\n")] = '\0';
    return out[0] == '/'
               ? STATUS_OK
               : error_set(
                     err, STATUS_IO,
                     "`cox pull` did not print the model's path, but \"%.60s\". See the run's log",
                     out);
}

static enum status import_model(struct run_keeper *k, const struct run_import *im, const char *to,
                                struct error *err)
{
    char name[RUN_PATH_BYTES + 16], where[PATH_MAX];
    const char *const argv[] = {k->program, "pull", im->what, NULL};
    snprintf(name, sizeof name, "%s/pulled", k->start->folder);
    int fd = open(name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0)
        return error_set(err, STATUS_IO, "cannot create %s: %s", name, strerror(errno));
    enum status s = run_step(k, "cox pull", argv, NULL, fd, err);
    if (s == STATUS_OK)
        s = read_pulled(fd, where, sizeof where, err);
    close(fd);
    if (s == STATUS_OK && symlink(where, to) != 0)
        s = error_set(err, STATUS_IO, "cannot create the link %s: %s", to, strerror(errno));
    return s;
}

/* Writes RUNS/volumes/artifact/ORG/PROJECT/NAME to `out`. */
static enum status artifact_folder(struct run_keeper *k, const char *name, char out[RUN_PATH_BYTES],
                                   struct error *err)
{
    int n = snprintf(out, RUN_PATH_BYTES, "%s/volumes/artifact/%s", k->start->store->dir, name);
    return n > 0 && n < RUN_PATH_BYTES
               ? STATUS_OK
               : error_set(err, STATUS_INVALID,
                           "the path of the artifact %s is too long. Choose a shorter name", name);
}

/* Imports an artifact. When the run exports the artifact at the same place, the place is a link
 * to the artifact's volume. Otherwise the place is a copy. */
static enum status import_artifact(struct run_keeper *k, const struct run_import *im,
                                   const char *to, struct error *err)
{
    char folder[RUN_PATH_BYTES];
    const char *const copy[] = {"cp", "-a", "--", folder, to, NULL};
    TRY(artifact_folder(k, im->what, folder, err));
    if (!run_file_keeps(k->file, im)) {
        if (access(folder, F_OK) != 0)
            return error_set(
                err, STATUS_NOT_FOUND,
                "the artifact %s does not exist yet. Start a run that exports it first", im->what);
        return run_step(k, "cp", copy, NULL, -1, err);
    }
    TRY(make_folders(folder, k->start->store->dir, true, err));
    return symlink(folder, to) == 0
               ? STATUS_OK
               : error_set(err, STATUS_IO, "cannot create the link %s: %s", to, strerror(errno));
}

static enum status import_one(struct run_keeper *k, const struct run_import *im, struct error *err)
{
    char to[RUN_PATH_BYTES];
    const char *const copy[] = {"cp", "-a", "--", im->what, to, NULL};
    TRY(run_place(k, im->path, false, to, err));
    run_log_say(&k->log, "importing %s: %s%s%s", im->path, im->what, im->ref ? " " : "",
                im->ref ? im->ref : "");
    switch (im->kind) {
    case RUN_IMPORT_GIT:
        return import_git(k, im, to, err);
    case RUN_IMPORT_MODEL:
        return import_model(k, im, to, err);
    case RUN_IMPORT_ARTIFACT:
        return import_artifact(k, im, to, err);
    case RUN_IMPORT_FILE:
        break;
    }
    return run_step(k, "cp", copy, NULL, -1, err);
}

enum status run_import_all(struct run_keeper *k, struct error *err)
{
    for (size_t i = 0; i < k->file->imports.n; i++) {
        const struct run_import *im = &k->file->imports.items[i];
        enum status s = import_one(k, im, err);
        if (s != STATUS_OK)
            return error_prefix(err, s, "import of %s (line %u)", im->path, im->at.line);
    }
    return STATUS_OK;
}

/* Pulls the model that `cox up` will open from the cache. A model that is already in the cache
 * is not fetched. */
enum status run_pull_model(struct run_keeper *k, struct error *err)
{
    struct model_ref ref;
    const char *cache = k->file->up.cache_dir;
    const char *const argv[] = {k->program, "pull", k->file->model.s, cache ? "--cache-dir" : NULL,
                                cache,      NULL};
    const char *const offline[] = {
        k->program, "pull", k->file->model.s, "--offline", cache ? "--cache-dir" : NULL,
        cache,      NULL};
    /* the revision is an option of `cox up`, which fetches such a model itself */
    if (!k->file->model.s || k->file->up.revision)
        return STATUS_OK;
    TRY(model_ref_parse(k->file->model.s, &ref, err));
    bool wants = run_file_pulls(k->file, &ref);
    model_ref_fini(&ref);
    return wants ? run_step(k, "cox pull", k->file->up.offline ? offline : argv, NULL, -1, err)
                 : STATUS_OK;
}

/* Makes the folder of each export and copies the exported place's content into it. */
enum status run_export_all(struct run_keeper *k, struct error *err)
{
    for (size_t i = 0; i < k->file->exports.n; i++) {
        const struct run_import *ex = &k->file->exports.items[i];
        char from[RUN_PATH_BYTES], inside[RUN_PATH_BYTES + 2], folder[RUN_PATH_BYTES];
        if (run_file_keeps(k->file, ex))
            continue; /* the place is a link to the volume, so nothing is copied */
        if (ex->kind == RUN_IMPORT_ARTIFACT)
            TRY(artifact_folder(k, ex->what, folder, err));
        else
            snprintf(folder, sizeof folder, "%s", ex->what);
        TRY(run_place(k, ex->path, false, from, err));
        if (access(from, F_OK) != 0) {
            run_log_say(&k->log,
                        "export of %s: nothing to export, because this path does not exist",
                        ex->path);
            continue;
        }
        snprintf(inside, sizeof inside, "%s/.", from);
        const char *const make[] = {"mkdir", "-p", "--", folder, NULL};
        const char *const copy[] = {"cp", "-a", "--", inside, folder, NULL};
        enum status s = run_step(k, "mkdir", make, NULL, -1, err);
        if (s == STATUS_OK)
            s = run_step(k, "cp", copy, NULL, -1, err);
        if (s != STATUS_OK)
            return error_prefix(err, s, "export of %s (line %u)", ex->path, ex->at.line);
    }
    return STATUS_OK;
}

/* ---- volumes ---- */

/* Makes the folder of a volume below RUNS/volumes. The folder stays after the run. A volume with
 * a size belongs to runs of the same name. A claim is shared by all runs. */
static enum status kept_folder(struct run_keeper *k, const struct run_volume *v,
                               char out[RUN_PATH_BYTES], struct error *err)
{
    bool is_claim = v->kind == RUN_VOLUME_CLAIM;
    int n = snprintf(out, RUN_PATH_BYTES, "%s/volumes/%s%s%s", k->start->store->dir,
                     is_claim ? "claim/" : "run/", is_claim ? v->what : k->file->name.s,
                     is_claim ? "" : v->path);
    if (n < 0 || n >= RUN_PATH_BYTES)
        return error_set(err, STATUS_INVALID,
                         "the path of the volume %s is too long. Choose a shorter path", v->path);
    size_t tail = strlen(k->start->store->dir) + strlen("/volumes/") + strlen("run/");
    for (size_t i = 0; !is_claim && k->file->name.s[i]; i++)
        if (out[tail + i] == '/' || (i == 0 && out[tail] == '.'))
            /* this way the name is one path component, and never "." or ".." */
            out[tail + i] = '_';
    return make_folders(out, k->start->store->dir, true, err);
}

enum status run_link_volumes(struct run_keeper *k, struct error *err)
{
    char at[RUN_PATH_BYTES], folder[RUN_PATH_BYTES];
    struct stat st;
    TRY(run_place(k, "/", true, at, err));
    for (size_t i = 0; i < k->file->volumes.n; i++) {
        const struct run_volume *v = &k->file->volumes.items[i];
        TRY(run_place(k, v->path, false, at, err));
        if (v->kind == RUN_VOLUME_HOST)
            snprintf(folder, sizeof folder, "%s", v->what);
        else
            TRY(kept_folder(k, v, folder, err));
        if (stat(folder, &st) != 0)
            return error_set(err, STATUS_NOT_FOUND, "volume %s (line %u): cannot find %s: %s",
                             v->path, v->at.line, folder, strerror(errno));
        if (symlink(folder, at) != 0)
            return error_set(err, STATUS_IO, "volume %s (line %u): cannot create the link %s: %s",
                             v->path, v->at.line, at, strerror(errno));
    }
    return STATUS_OK;
}

/* ---- environment ---- */

/* Returns true when the entry is the variable of an option, such as COX_MAX_MODEL_LEN for
 * "max-model-len". */
static bool is_of_option(const char *entry, const char *name)
{
    if (strncmp(entry, "COX_", 4) != 0)
        return false;
    for (entry += 4; *name; name++, entry++)
        if (*entry != (*name == '-' ? '_' : toupper((unsigned char)*name)))
            return false;
    return *entry == '=';
}

/* Returns true when the run or its file sets this variable, so that the value from the starting
 * command is dropped. */
static bool is_overruled(const struct run_keeper *k, const char *entry)
{
    static const char *const own[] = {"config", "model", "run-id", "run-root", "runs-dir", "runs"};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (is_of_option(entry, own[i]))
            return true;
    if (run_file_hf_home(k->file) &&
        (strncmp(entry, "HF_HOME=", strlen("HF_HOME=")) == 0 ||
         strncmp(entry, "HF_HUB_CACHE=", strlen("HF_HUB_CACHE=")) == 0))
        return true;
    for (size_t i = 0; i < k->file->options.n; i++)
        if (is_of_option(entry, k->file->options.items[i].name))
            return true;
    for (size_t i = 0; i < k->file->env.n; i++) {
        size_t n = strlen(k->file->env.items[i].name);
        if (strncmp(entry, k->file->env.items[i].name, n) == 0 && entry[n] == '=')
            return true;
    }
    return false;
}

static void add(struct run_keeper *k, size_t *n, const char *name, const char *value)
{
    size_t size = strlen(name) + strlen(value) + 2;
    char *entry = arena_try_alloc(&k->arena, size);
    if (!entry)
        /* out of memory: this call ends the program, as mem_alloc does */
        entry = mem_array(SIZE_MAX, 2);
    snprintf(entry, size, "%s=%s", name, value);
    k->env[(*n)++] = entry;
}

/* Sets COX_RUN_ENV to the names of this run's variables. A run that is started inside this run
 * then does not inherit them (cli/commands/run/create.c). */
static void add_names(struct run_keeper *k, size_t *n)
{
    struct strbuf names;
    strbuf_init(&names, 0);
    for (size_t i = 0; i < k->file->env.n; i++)
        strbuf_printf(&names, "%s%s", i ? "," : "", k->file->env.items[i].name);
    add(k, n, "COX_RUN_ENV", strbuf_str(&names).ptr);
    strbuf_fini(&names);
}

void run_build_env(struct run_keeper *k)
{
    enum { OWN = 10 };
    size_t n_all = 0, n = 0;
    while (environ[n_all])
        n_all++;
    k->env = arena_try_array(&k->arena, n_all + k->file->env.n + OWN + 1, sizeof *k->env);
    if (!k->env)
        k->env = mem_array(SIZE_MAX, 2);
    for (size_t i = 0; i < n_all; i++)
        if (!is_overruled(k, environ[i]))
            k->env[n++] = environ[i];
    add(k, &n, "COX_RUN_ID", k->start->id);
    add(k, &n, "COX_RUN_ROOT", k->root);
    add_names(k, &n);
    add(k, &n, "COX_RUNS", k->program);
    add(k, &n, "COX_RUNS_DIR", k->start->store->dir);
    if (run_file_hf_home(k->file)) {
        char place[2 * RUN_PATH_BYTES];
        snprintf(place, sizeof place, "%s%s", k->root, run_file_hf_home(k->file));
        add(k, &n, "HF_HOME", place);
    }
    /* git never prompts, and only uses transports that a run file may name */
    add(k, &n, "GIT_TERMINAL_PROMPT", "0");
    add(k, &n, "GIT_ALLOW_PROTOCOL", "https:ssh:file");
    for (size_t i = 0; i < k->file->env.n; i++) {
        const struct run_env *e = &k->file->env.items[i];
        const char *taken = json_string_value(json_object_get(k->start->taken, e->name));
        const char *value = e->is_taken ? taken : e->value;
        if (value)
            add(k, &n, e->name, value);
    }
}
