/* Removes one model from the cache folder, for `cox rm`.
 * `cache_remove` finds the model in a list of `cache_list`, and refuses when a process uses it
 * (use.h). It takes the lock of fetches (cli/pull/files/lock.h) and removes all entries of the
 * model.
 * Invariants: a name is compared with the list and never becomes a path by itself. Everything is
 * opened relative to an open folder, and no link is followed. A published folder is renamed
 * first, so that no process reads half a model. Calls block the caller's thread. */
#include "cli/cache/remove.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cache/use.h"
#include "cli/pull/files/lock.h"
#include "cli/pull/place.h"
#include "common/base/mem.h"
#include "common/base/str.h"
#include "common/model/info/ref.h"

enum { MAX_DEPTH = 16, LOOKS = 4, NAMES_BYTES = 600 };

/* ---- choice of the entries ---- */

/* Returns the folder name of the reference `name`. The caller frees it with `mem_free`. Returns
 * NULL when `name` is not a reference to a model in the cache. */
static char *base_of(const char *name)
{
    struct model_ref r;
    struct error err;
    char *out = NULL;
    if (model_ref_parse(name, &r, &err) != STATUS_OK)
        return NULL;
    if (model_ref_is_remote(&r))
        out = mem_strdup(strrchr(r.folder, '/') + 1);
    else if (r.kind == MODEL_REF_DEMO)
        out = mem_strdup(r.text);
    model_ref_fini(&r);
    return out;
}

static const struct cached_model *find(const struct cached_models *there, const char *name,
                                       const char *base)
{
    for (uint32_t i = 0; i < there->n_items; i++) {
        const struct cached_model *m = &there->items[i];
        if ((base && strcmp(m->base, base) == 0) || strcmp(m->entry, name) == 0 ||
            strcmp(m->base, name) == 0 || (m->name && strcmp(m->name, name) == 0))
            return m;
    }
    return NULL;
}

static enum status no_such_model(const char *cache_dir, const char *name,
                                 const struct cached_models *there, struct error *err)
{
    struct strbuf names;
    char *shown = cache_printable(name);
    strbuf_init(&names, NAMES_BYTES);
    for (uint32_t i = 0; i < there->n_items; i++)
        if (!strbuf_printf(&names, "%s%s", i ? ", " : "", there->items[i].name))
            break;
    enum status s =
        there->n_items == 0
            ? error_set(err, STATUS_NOT_FOUND,
                        "model %.200s is not in the cache: the cache (%s) is empty", shown,
                        cache_dir)
            : error_set(
                  err, STATUS_NOT_FOUND,
                  "model %.200s is not in the cache (%s). The cache has these models: " STR_FMT,
                  shown, cache_dir, STR_ARG(strbuf_str(&names)));
    strbuf_fini(&names);
    mem_free(shown);
    return s;
}

/* ---- removing ---- */

static enum status io_error(const char *name, struct error *err)
{
    return error_set(err, STATUS_IO, "cannot remove %s: %s", name, strerror(errno));
}

static enum status remove_entry(int at, const char *name, int depth, struct cache_removed *out,
                                struct error *err);

/* Opens a folder of the model. A folder without read permission is made readable first, through
 * its handle, because its name may have become the name of another file. Returns -1 with errno. */
static int open_folder(int at, const char *name)
{
    char path[64];
    struct stat st;
    int handle = openat(at, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (handle < 0)
        return -1;
    snprintf(path, sizeof path, "/proc/self/fd/%d", handle);
    if (fstat(handle, &st) == 0 && (st.st_mode & S_IRWXU) != S_IRWXU && chmod(path, S_IRWXU) != 0) {
        int saved = errno;
        (void)close(handle);
        errno = saved;
        return -1;
    }
    int fd = openat(handle, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), saved = errno;
    (void)close(handle);
    errno = saved;
    return fd;
}

static enum status remove_folder(int at, const char *name, int depth, struct cache_removed *out,
                                 struct error *err)
{
    if (depth == 0)
        return error_set(
            err, STATUS_LIMIT,
            "cannot remove %s: its folders are nested too deeply. Remove it with rm -r", name);
    int fd = open_folder(at, name);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    if (!d) {
        enum status s = io_error(name, err);
        if (fd >= 0)
            (void)close(fd);
        return s;
    }
    enum status s = STATUS_OK;
    for (const struct dirent *e; s == STATUS_OK && (e = readdir(d));)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            s = remove_entry(dirfd(d), e->d_name, depth - 1, out, err);
    closedir(d);
    if (s == STATUS_OK && unlinkat(at, name, AT_REMOVEDIR) != 0)
        s = io_error(name, err);
    return s;
}

/* Removes a file, a folder or a link. The target of a link is not removed. */
static enum status remove_entry(int at, const char *name, int depth, struct cache_removed *out,
                                struct error *err)
{
    struct stat st;
    if (fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return errno == ENOENT ? STATUS_OK : io_error(name, err);
    if (S_ISDIR(st.st_mode))
        return remove_folder(at, name, depth, out, err);
    if (unlinkat(at, name, 0) != 0)
        return errno == ENOENT ? STATUS_OK : io_error(name, err);
    if (st.st_nlink > 1)
        out->n_shared_bytes += (uint64_t)st.st_blocks * 512;
    else
        out->n_bytes += (uint64_t)st.st_blocks * 512;
    return STATUS_OK;
}

/* Opens CACHE/models or a folder below it. Only the cache folder itself may be a link. */
static int open_below(const char *cache_dir, const char *below, struct error *err)
{
    int cache = open(cache_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int models =
        cache < 0 ? -1 : openat(cache, "models", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int fd = models < 0 || !below
                 ? models
                 : openat(models, below, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        error_set(
            err, STATUS_IO,
            "cannot open %s/models%s%s: %s. Nothing was removed; symbolic links are not followed",
            cache_dir, below ? "/" : "", below ? below : "", strerror(errno));
    if (models >= 0 && fd != models)
        (void)close(models);
    if (cache >= 0)
        (void)close(cache);
    return fd;
}

/* Removes all entries of `base`. A published folder is renamed first, so that other processes
 * find no model instead of half a model. The next pull also removes folders with .old- in their
 * name. */
static enum status remove_pulled(const char *cache_dir, const char *base,
                                 const struct cached_models *there, struct cache_removed *out,
                                 struct error *err)
{
    enum status s = STATUS_OK;
    int fd = open_below(cache_dir, "pulled", err);
    if (fd < 0)
        return err->status;
    char *old = pull_join(base, ".old-", "rm");
    if (renameat(fd, base, fd, old) == 0 || errno == ENOENT)
        s = remove_entry(fd, old, MAX_DEPTH, out, err);
    else
        s = remove_entry(fd, base, MAX_DEPTH, out, err);
    for (uint32_t i = 0; s == STATUS_OK && i < there->n_items; i++)
        if (strcmp(there->items[i].base, base) == 0)
            s = remove_entry(fd, there->items[i].entry, MAX_DEPTH, out, err);
    mem_free(old);
    (void)close(fd);
    return s == STATUS_OK ? s : error_prefix(err, s, "%s/" CACHE_PULLED, cache_dir);
}

static enum status remove_demo(const char *cache_dir, const struct demo_model *demo,
                               struct cache_removed *out, struct error *err)
{
    int fd = open_below(cache_dir, NULL, err);
    if (fd < 0)
        return err->status;
    enum status s = remove_entry(fd, demo->folder, MAX_DEPTH, out, err);
    (void)close(fd);
    return s == STATUS_OK ? s : error_prefix(err, s, "%s/models", cache_dir);
}

/* ---- the lock against fetches ---- */

static int n_looks;

/* Returns true after LOOKS attempts to take the lock. The lock of a killed process is taken over
 * at the first or second attempt. */
static bool has_looked_enough(void)
{
    return ++n_looks > LOOKS;
}

static void say_nothing(const char *text)
{
    (void)text;
}

static bool is_never_done(void *ctx)
{
    (void)ctx;
    return false;
}

static enum status acquire(const char *cache_dir, const struct cached_model *m,
                           struct pull_lock *lock, struct error *err)
{
    const struct pull_lock_wait wait = {30, has_looked_enough, say_nothing, is_never_done, NULL};
    char *folder = cache_folder(cache_dir, m->demo, m->base);
    char *path = pull_join(folder, m->demo ? "/.cox-pull" : "", ".lock");
    n_looks = 0;
    enum status s = pull_lock_acquire(lock, path, &wait, err);
    if (s == STATUS_CLOSED)
        s = error_set(err, STATUS_EXISTS,
                      "cannot remove model %s: it is being downloaded (%s). Stop that process or "
                      "wait until it has ended",
                      m->name, path);
    mem_free(path);
    mem_free(folder);
    return s;
}

enum status cache_remove(const char *cache_dir, const char *name, const struct cached_models *there,
                         struct cache_removed *out, struct error *err)
{
    char who[96];
    struct pull_lock lock;
    *out = (struct cache_removed){0};
    char *base = base_of(name);
    const struct cached_model *m = find(there, name, base);
    mem_free(base);
    if (!m)
        return no_such_model(cache_dir, name, there, err);
    char *folder = cache_folder(cache_dir, m->demo, m->base);
    bool is_used = cache_is_in_use(cache_dir, folder, m->reference, who, sizeof who);
    mem_free(folder);
    if (is_used)
        return error_set(err, STATUS_EXISTS,
                         "cannot remove model %s: it is in use (%s). Stop that process first",
                         m->name, who);
    TRY(acquire(cache_dir, m, &lock, err));
    enum status s = m->demo ? remove_demo(cache_dir, m->demo, out, err)
                            : remove_pulled(cache_dir, m->base, there, out, err);
    pull_lock_release(&lock);
    return s;
}
