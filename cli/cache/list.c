/* Lists the models of a cache folder for `cox models` and `cox rm`.
 * `cache_list` walks the folders below models/pulled and those of the demo models. For each model
 * it reads the manifest, or the mark of a fetch in progress, and counts files and bytes.
 * Invariants: the folder's content is not trusted. Names are only opened relative to the folder,
 * and links in the parts of a fetch are not followed. Depth and the number of models are
 * bounded. Names are printed through `cache_printable`. The caller frees the list with
 * `cache_list_fini`. */
#include "cli/cache/list.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cli/pull/mark.h"
#include "cli/pull/place.h"
#include "common/base/mem.h"
#include "common/base/str.h"
#include "common/model/info/pulled.h"

enum { MODELS_MAX = 10000, LOCK_YOUNG_S = 30, MAX_DEPTH = 4 };

const char *cached_state_name(enum cached_state s)
{
    static const char *const names[CACHED_STATES] = {"whole", "damaged", "parts", "fetching"};
    return names[s];
}

static void fini(struct cached_model *m)
{
    char *const owned[] = {m->entry, m->base, m->name, m->reference, m->revision, m->commit};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++)
        mem_free(owned[i]);
}

void cache_list_fini(struct cached_models *l)
{
    for (uint32_t i = 0; i < l->n_items; i++)
        fini(&l->items[i]);
    mem_free(l->items);
    *l = (struct cached_models){0};
}

/* ---- names ---- */

char *cache_printable(const char *s)
{
    bool is_text = str_utf8_valid(str_from(s)) == strlen(s);
    char *out = mem_strdup(s);
    for (char *c = out; *c; c++) {
        bool is_c1 = (unsigned char)c[0] == 0xC2 && (unsigned char)c[1] < 0xA0;
        if ((unsigned char)*c < 0x20 || *c == 0x7F || is_c1 ||
            (!is_text && (unsigned char)*c >= 0x80))
            *c = '?';
        if (is_c1 && c[1])
            *++c = '?';
    }
    return out;
}

/* Returns the reference as users type it: "org/name", "org/name@v1", "hf:org/name/file.gguf",
 * "s3://…". */
static char *typed(const struct model_ref *r)
{
    bool is_main = r->kind == MODEL_REF_HUB && strcmp(r->revision, "main") == 0;
    if (r->kind != MODEL_REF_HUB)
        return mem_strdup(r->text);
    char *front = r->file ? pull_join("hf:", r->repo, "/") : mem_strdup(r->repo);
    char *whole = pull_join(front, r->file ? r->file : "", "");
    char *out = is_main ? mem_strdup(whole) : pull_join(whole, "@", r->revision);
    mem_free(front);
    mem_free(whole);
    return out;
}

static void set_reference(struct cached_model *m, const char *reference)
{
    struct model_ref r;
    struct error err;
    if (model_ref_parse(reference, &r, &err) != STATUS_OK)
        return;
    if (model_ref_is_remote(&r)) {
        m->reference = mem_strdup(r.text);
        m->name = typed(&r);
        mem_free(m->revision);
        m->revision = mem_strdup(r.revision ? r.revision : "");
    }
    model_ref_fini(&r);
}

/* ---- contents of a folder ---- */

static const char *format_of(const struct pulled *p)
{
    static const char *const ends[][2] = {
        {".safetensors", "safetensors"}, {".gguf", "gguf"}, {".bin", "pytorch"}};
    for (size_t k = 0; k < sizeof ends / sizeof *ends; k++)
        for (uint32_t i = 0; i < p->n_files; i++) {
            const char *name = p->files[i].name;
            size_t n = strlen(name), m = strlen(ends[k][0]);
            if (n > m && strcmp(name + n - m, ends[k][0]) == 0)
                return ends[k][1];
        }
    return "";
}

/* Sets the model's last use to the file's access time when that time is later. Many file systems
 * update the access time at most once a day, and some never do. */
static void look_at_use(struct cached_model *m, const char *path)
{
    struct stat st;
    if (stat(path, &st) == 0 && st.st_atime > st.st_mtime + 1 && st.st_atime > m->fetched_s + 1 &&
        st.st_atime > m->used_s)
        m->used_s = st.st_atime;
}

static void look_at_model(struct cached_model *m, const char *folder)
{
    struct pulled p;
    struct error why = {0};
    struct stat st;
    char *reference, *manifest = pull_join(folder, "/", PULLED_MANIFEST);
    enum status s = pulled_open_folder(folder, &p, &reference, &why);
    m->state = s == STATUS_OK ? CACHED_WHOLE : CACHED_DAMAGED;
    if (s != STATUS_OK)
        snprintf(m->problem, sizeof m->problem, "%s", why.text);
    if (reference)
        set_reference(m, reference);
    mem_free(m->commit);
    m->commit = cache_printable(p.commit ? p.commit : "");
    m->format = format_of(&p);
    m->n_bytes = p.n_bytes;
    m->n_files = p.n_files;
    if (stat(manifest, &st) == 0)
        m->fetched_s = st.st_mtime;
    for (uint32_t i = 0; i < p.n_files; i++) {
        char *path = pull_join(folder, "/", p.files[i].name);
        look_at_use(m, path);
        mem_free(path);
    }
    mem_free(manifest);
    mem_free(reference);
    pulled_fini(&p);
}

/* Counts the files of a folder and their bytes on the disk. Links are not followed. */
static void count_files(int fd, int depth, struct cached_model *m)
{
    DIR *d = fdopendir(fd);
    if (!d) {
        (void)close(fd);
        return;
    }
    for (const struct dirent *e; (e = readdir(d));) {
        struct stat st;
        if (e->d_name[0] == '.' || fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0)
            continue;
        if (S_ISREG(st.st_mode)) {
            m->n_bytes += (uint64_t)st.st_blocks * 512;
            m->n_files++;
            m->fetched_s = st.st_mtime > m->fetched_s ? st.st_mtime : m->fetched_s;
        } else if (S_ISDIR(st.st_mode) && depth > 0) {
            int below =
                openat(dirfd(d), e->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
            if (below >= 0)
                count_files(below, depth - 1, m);
        }
    }
    closedir(d);
}

/* Returns true when this machine wrote the lock file's record after its last boot
 * (cli/pull/files/lock.c). */
static bool is_of_this_boot(int fd)
{
    char record[256], own[40] = "-", boot[40];
    ssize_t n = pread(fd, record, sizeof record - 1, 0);
    record[n > 0 ? n : 0] = '\0';
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");
    bool is = f && fscanf(f, "%39s", own) == 1 && sscanf(record, "%*32s %39s", boot) == 1 &&
              strcmp(own, boot) == 0;
    if (f)
        (void)fclose(f);
    return is;
}

/* Returns true while a process fetches the model. A fetch on this machine holds a flock on the
 * lock file. A fetch on another machine writes into the file every two seconds. */
static bool is_fetched_now(int pulled_fd, const char *base)
{
    struct stat st;
    char *lock = pull_join(base, ".lock", "");
    int fd = openat(pulled_fd, lock, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    bool is = fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (fd >= 0 && !is && !is_of_this_boot(fd))
        is = fstat(fd, &st) == 0 && time(NULL) - st.st_mtime < LOCK_YOUNG_S && st.st_size > 0;
    if (fd >= 0)
        (void)close(fd);
    mem_free(lock);
    return is;
}

static void look_at_parts(struct cached_model *m, int pulled_fd)
{
    char reference[MODEL_REF_MAX_BYTES + 64];
    int fd = openat(pulled_fd, m->entry, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    m->state = is_fetched_now(pulled_fd, m->base) ? CACHED_FETCHING : CACHED_PARTS;
    m->format = "";
    if (fd < 0)
        return;
    if (pull_mark_read(fd, reference, sizeof reference))
        set_reference(m, reference);
    count_files(fd, MAX_DEPTH, m);
}

/* ---- the cache ---- */

static struct cached_model *add(struct cached_models *l, const char *entry)
{
    if (l->n_items == l->cap) {
        l->cap = l->cap ? 2 * l->cap : 16;
        l->items = mem_realloc(l->items, l->cap * sizeof *l->items);
    }
    struct cached_model *m = &l->items[l->n_items++];
    *m = (struct cached_model){.entry = mem_strdup(entry),
                               .format = "",
                               .revision = mem_strdup(""),
                               .commit = mem_strdup("")};
    return m;
}

/* Returns the length of the folder's name without its suffix. An unpublished folder has the
 * suffix .part-… or .old-…. */
static size_t base_length(const char *entry)
{
    const char *part = strstr(entry, ".part-"), *old = strstr(entry, ".old-");
    return part ? (size_t)(part - entry) : old ? (size_t)(old - entry) : strlen(entry);
}

static enum status add_pulled(const char *cache_dir, struct cached_models *l, struct error *err)
{
    char *folder = pull_join(cache_dir, "/", CACHE_PULLED);
    DIR *d = opendir(folder);
    enum status s = d || errno == ENOENT || errno == ENOTDIR
                        ? STATUS_OK
                        : error_set(err, STATUS_IO, "cannot read the cache folder %s: %s", folder,
                                    strerror(errno));
    for (const struct dirent *e; d && (e = readdir(d));) {
        struct stat st;
        if (e->d_name[0] == '.' || fstatat(dirfd(d), e->d_name, &st, 0) != 0 ||
            !S_ISDIR(st.st_mode))
            continue;
        if (l->n_items == MODELS_MAX) {
            l->has_more = true;
            break;
        }
        struct cached_model *m = add(l, e->d_name);
        size_t n = base_length(e->d_name);
        m->base = mem_strndup(e->d_name, n);
        char *path = pull_join(folder, "/", e->d_name);
        if (e->d_name[n])
            look_at_parts(m, dirfd(d));
        else
            look_at_model(m, path);
        if (!m->name)
            m->name = cache_printable(e->d_name);
        mem_free(path);
    }
    if (d)
        closedir(d);
    mem_free(folder);
    return s;
}

char *cache_folder(const char *cache_dir, const struct demo_model *demo, const char *name)
{
    char *below = pull_join(demo ? "models" : CACHE_PULLED, "/", demo ? demo->folder : name);
    char *folder = pull_join(cache_dir, "/", below);
    mem_free(below);
    return folder;
}

static void add_demo(const char *cache_dir, const struct demo_model *demo, struct cached_models *l)
{
    struct stat st, whole;
    char *folder = cache_folder(cache_dir, demo, NULL);
    char *path = pull_join(folder, "/", demo->file);
    if (stat(folder, &st) == 0 && S_ISDIR(st.st_mode)) {
        struct cached_model *m = add(l, demo->name);
        m->demo = demo;
        m->base = mem_strdup(demo->name);
        m->name = mem_strdup(demo->name);
        m->reference = mem_strdup(demo->name);
        if (stat(path, &whole) == 0) {
            m->format = "gguf";
            m->fetched_s = whole.st_mtime;
            m->n_bytes = (uint64_t)whole.st_size;
            m->n_files = 1;
            look_at_use(m, path);
        } else {
            int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
            m->state = CACHED_PARTS;
            if (fd >= 0)
                count_files(fd, MAX_DEPTH, m);
        }
        if (m->n_files == 0) /* the folder contains only lock files, so no model is listed */
            fini(&l->items[--l->n_items]);
    }
    mem_free(path);
    mem_free(folder);
}

static int by_name(const void *a, const void *b)
{
    const struct cached_model *x = a, *y = b;
    int by = strcmp(x->name, y->name);
    return by ? by : strcmp(x->entry, y->entry);
}

enum status cache_list(const char *cache_dir, struct cached_models *out, struct error *err)
{
    *out = (struct cached_models){0};
    enum status s = add_pulled(cache_dir, out, err);
    for (size_t i = 0; s == STATUS_OK && i < n_demo_models; i++)
        add_demo(cache_dir, &demo_models[i], out);
    if (out->n_items > 0)
        qsort(out->items, out->n_items, sizeof *out->items, by_name);
    return s;
}
