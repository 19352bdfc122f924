/* Shares files with the cache of Python's huggingface_hub (hf_cache.h has its layout).
 * cli/pull/pull.c calls `hf_cache_take` for each file before a fetch and `hf_cache_give` after
 * it. A file is linked or copied under a temporary name, then renamed.
 * Invariants: the two caches share hard links, never symbolic links. Either cache may be cleaned
 * (`hf cache rm`, rm) without breaking the other, and the bytes are stored once. A blob is
 * hashed before it is trusted. A blob in use is replaced by a rename, never overwritten. */
#include "cli/pull/sources/hf_cache.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/pull/files/list.h"
#include "cli/pull/files/part.h"
#include "common/base/mem.h"

enum { BLOCK = 1 << 20 };

/* ---- location ---- */

static char *joined(const char *a, const char *b)
{
    struct strbuf s;
    strbuf_init(&s, 0);
    strbuf_printf(&s, "%s%s", a, b);
    char *out = mem_strdup(strbuf_str(&s).ptr);
    strbuf_fini(&s);
    return out;
}

static bool is_given(const char *s)
{
    return s && s[0];
}

/* Expands "~/x" as Python's expanduser does. */
static char *expanded(const char *path, const char *home)
{
    return path[0] == '~' && (path[1] == '/' || !path[1]) && is_given(home) ? joined(home, path + 1)
                                                                            : mem_strdup(path);
}

void hf_cache_find(const struct hf_cache_places *p, struct hf_cache *out)
{
    const char *choice = is_given(p->choice) ? p->choice : "auto";
    struct stat st;
    *out = (struct hf_cache){0};
    if (strcmp(choice, "off") == 0)
        return;
    bool is_auto = strcmp(choice, "auto") == 0;
    char *folder = NULL;
    if (!is_auto) {
        folder = expanded(choice, p->home);
    } else if (is_given(p->hf_home)) {
        char *home = expanded(p->hf_home, p->home);
        folder = joined(home, "/hub");
        mem_free(home);
    } else if (is_given(p->xdg_cache_home)) {
        folder = joined(p->xdg_cache_home, "/huggingface/hub");
    } else if (is_given(p->home)) {
        folder = joined(p->home, "/.cache/huggingface/hub");
    }
    bool is_named = !is_auto || is_given(p->hf_home);
    if (folder && !is_named && (stat(folder, &st) != 0 || !S_ISDIR(st.st_mode))) {
        mem_free(folder);
        return;
    }
    *out = (struct hf_cache){folder, folder != NULL, is_named};
}

void hf_cache_fini(struct hf_cache *c)
{
    mem_free(c->folder);
    *c = (struct hf_cache){0};
}

/* ---- paths ---- */

/* Writes FOLDER/models--ORG--NAME/KIND/NAME to `out`. With an empty kind or name, it writes the
 * path of the folder. */
static enum status path_of(const struct hf_cache *c, const char *repo, const char *kind,
                           const char *name, char *out, struct error *err)
{
    struct strbuf id;
    strbuf_init(&id, 0);
    for (const char *s = repo; *s; s++)
        strbuf_append(&id, *s == '/' ? "--" : s, *s == '/' ? 2 : 1);
    int n = snprintf(out, PATH_MAX, "%s/models--%s/%s%s%s", c->folder, strbuf_str(&id).ptr, kind,
                     name[0] ? "/" : "", name);
    strbuf_fini(&id);
    return n > 0 && n < PATH_MAX ? STATUS_OK
                                 : error_set(err, STATUS_INVALID,
                                             "cannot use huggingface_hub's cache %s: a path in it "
                                             "is too long. Set HF_HUB_CACHE to a shorter path",
                                             c->folder);
}

static const char *blob_id(const struct pull_file *f)
{
    return f->sha256[0] ? f->sha256 : f->git_id;
}

static const char *name_there(const struct pull_file *f)
{
    return f->hub_name ? f->hub_name : f->name;
}

static enum status io_error(const char *path, struct error *err)
{
    return error_set(err, STATUS_IO, "cannot read or write %s: %s", path, strerror(errno));
}

/* Makes the folders above the last component of `path`. */
static enum status make_parents(const char *path, struct error *err)
{
    char parent[PATH_MAX];
    struct stat st;
    for (const char *c = path + 1; (c = strchr(c, '/')); c++) {
        snprintf(parent, sizeof parent, "%.*s", (int)(c - path), path);
        if (mkdir(parent, 0777) != 0 && (stat(parent, &st) != 0 || !S_ISDIR(st.st_mode)))
            return io_error(parent, err);
    }
    return STATUS_OK;
}

/* ---- bytes ---- */

static enum status copy_bytes(int from, int to, const char *path, struct error *err)
{
    char *block = mem_alloc(BLOCK);
    enum status s = STATUS_OK;
    for (off_t at = 0; s == STATUS_OK;) {
        ssize_t n = pread(from, block, BLOCK, at), done = 0;
        if (n == 0)
            break;
        while (n > 0 && done < n) {
            ssize_t m = pwrite(to, block + done, (size_t)(n - done), at + done);
            if (m < 0 && errno != EINTR)
                break;
            done += m > 0 ? m : 0;
        }
        if ((n < 0 && errno != EINTR) || (n > 0 && done < n))
            s = io_error(path, err);
        at += done;
    }
    mem_free(block);
    return s;
}

/* Copies the file `from` to `part`, then renames `part` to `to`. The blocks are shared if the
 * file system supports it. `part` is locked, so that two processes do not write it. The bytes of
 * a killed process are overwritten. */
static enum status copy(const char *from, const char *part, const char *to, bool only_clones,
                        struct error *err)
{
    int in = open(from, O_RDONLY | O_CLOEXEC);
    int out = in < 0 ? -1 : open(part, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644);
    enum status s = STATUS_OK;
    if (out < 0 || flock(out, LOCK_EX | LOCK_NB) != 0 || ftruncate(out, 0) != 0) {
        s = io_error(in < 0 ? from : part, err);
    } else {
        if (ioctl(out, FICLONE, in) != 0)
            s = only_clones ? error_set(err, STATUS_UNSUPPORTED,
                                        "cannot clone %s: it is on another file system", from)
                            : copy_bytes(in, out, to, err);
        if (s == STATUS_OK && (fsync(out) != 0 || rename(part, to) != 0))
            s = io_error(to, err);
        if (s != STATUS_OK)
            (void)unlink(part);
    }
    if (in >= 0)
        (void)close(in);
    if (out >= 0)
        (void)close(out);
    return s;
}

/* Makes a hard link to the file itself. A blob may be a symbolic link, and a hard link to that
 * symbolic link would point outside the cache of Coxswain. */
static bool has_linked(const char *from, const char *to)
{
    return linkat(AT_FDCWD, from, AT_FDCWD, to, AT_SYMLINK_FOLLOW) == 0;
}

/* ---- from huggingface_hub's cache ---- */

bool hf_cache_take(const struct hf_cache *c, const struct fetch_net *net, const char *repo,
                   struct pull_file *f, const char *folder, struct error *err)
{
    char blob[PATH_MAX], path[PATH_MAX], part[PATH_MAX];
    struct stat st;
    *err = (struct error){0};
    int n = snprintf(path, sizeof path, "%s/%s", folder, f->name);
    int m = snprintf(part, sizeof part, "%s/%s.part", folder, f->name);
    if (!c->folder || !blob_id(f)[0] || n < 0 || n >= PATH_MAX || m < 0 || m >= PATH_MAX ||
        path_of(c, repo, "blobs", blob_id(f), blob, err) != STATUS_OK)
        return false;
    if (stat(blob, &st) != 0 || !S_ISREG(st.st_mode))
        return false;
    if ((uint64_t)st.st_size != f->n_bytes) {
        error_set(err, STATUS_PROTOCOL,
                  "%s is not used: it has %lld bytes instead of the expected %llu", blob,
                  (long long)st.st_size, (unsigned long long)f->n_bytes);
        return false;
    }
    if (pull_file_check(net, f, blob, err) != STATUS_OK)
        return false;
    f->hf_blob_is_right = true;
    if (make_parents(path, err) != STATUS_OK)
        return false;
    if (!has_linked(blob, path) && copy(blob, part, path, false, err) != STATUS_OK)
        return false;
    (void)unlink(part); /* the partial copy of an earlier run is not needed */
    m = snprintf(part, sizeof part, "%s/%s.part.ranges", folder, f->name);
    if (m > 0 && m < PATH_MAX)
        (void)unlink(part);
    return true;
}

/* ---- to huggingface_hub's cache ---- */

/* Checks whether the blob has the content of file `f`. Name and size alone do not prove that the
 * bytes are right. */
static enum status check_blob(const struct fetch_net *net, const struct pull_file *f,
                              const char *from, const char *blob, bool *is_right, struct error *err)
{
    struct stat here, there;
    *is_right = false;
    if (stat(blob, &there) != 0 || !S_ISREG(there.st_mode) || (uint64_t)there.st_size != f->n_bytes)
        return STATUS_OK;
    *is_right = f->hf_blob_is_right || (stat(from, &here) == 0 && here.st_dev == there.st_dev &&
                                        here.st_ino == there.st_ino);
    if (*is_right)
        return STATUS_OK;
    enum status s = pull_file_check(net, f, blob, err);
    *is_right = s == STATUS_OK;
    return s == STATUS_CLOSED ? s : STATUS_OK;
}

/* Puts a blob into the cache. A damaged blob is replaced in one step. A process that has the
 * damaged blob open keeps the old bytes. */
static enum status give_blob(const struct hf_cache *c, const struct fetch_net *net,
                             const struct pull_file *f, const char *from, const char *blob,
                             struct error *err)
{
    char part[PATH_MAX], fresh[PATH_MAX];
    bool is_right;
    int n = snprintf(part, sizeof part, "%s.cox.incomplete", blob);
    int m = snprintf(fresh, sizeof fresh, "%s.cox-%d", blob, (int)getpid());
    if (n < 0 || n >= PATH_MAX || m < 0 || m >= PATH_MAX)
        return error_set(err, STATUS_INVALID,
                         "cannot add %s to huggingface_hub's cache: its path is too long. Set "
                         "HF_HUB_CACHE to a shorter path",
                         blob);
    TRY(check_blob(net, f, from, blob, &is_right, err));
    if (is_right)
        return STATUS_OK;
    TRY(make_parents(blob, err));
    if (has_linked(from, blob))
        return STATUS_OK;
    (void)unlink(fresh); /* a killed process with the same process number left this file */
    if (!has_linked(from, fresh))
        return copy(from, part, blob, !c->copies, err);
    if (rename(fresh, blob) == 0)
        return STATUS_OK;
    enum status s = io_error(blob, err);
    (void)unlink(fresh);
    return s;
}

/* Makes snapshots/COMMIT/NAME, a relative link as huggingface_hub makes it. */
static enum status give_link(const char *path, const char *name, const char *id, struct error *err)
{
    char to[PATH_MAX], there[PATH_MAX], fresh[PATH_MAX];
    struct strbuf b;
    strbuf_init(&b, sizeof to - 1);
    strbuf_append_c(&b, "../../");
    for (const char *c = name; (c = strchr(c, '/')); c++)
        strbuf_append_c(&b, "../");
    strbuf_printf(&b, "blobs/%s", id);
    snprintf(to, sizeof to, "%s", strbuf_str(&b).ptr);
    strbuf_fini(&b);
    TRY(make_parents(path, err));
    if (symlink(to, path) == 0)
        return STATUS_OK;
    ssize_t n = readlink(path, there, sizeof there - 1);
    if (errno == EEXIST && n > 0 && (size_t)n == strlen(to) && memcmp(there, to, (size_t)n) == 0)
        return STATUS_OK;
    int m = snprintf(fresh, sizeof fresh, "%s.cox", path);
    if (m < 0 || m >= PATH_MAX || (unlink(fresh) != 0 && errno != ENOENT) ||
        symlink(to, fresh) != 0 || rename(fresh, path) != 0)
        return io_error(path, err);
    return STATUS_OK;
}

/* Writes refs/REVISION. The file is first written outside refs/, where huggingface_hub does not
 * search for refs, then renamed. */
static enum status give_ref(const struct hf_cache *c, const struct model_ref *r, const char *commit,
                            struct error *err)
{
    char path[PATH_MAX], fresh[PATH_MAX], name[40];
    if (strcmp(r->revision, commit) == 0)
        return STATUS_OK;
    snprintf(name, sizeof name, ".cox-ref-%d", (int)getpid());
    TRY(path_of(c, r->repo, "refs", r->revision, path, err));
    TRY(path_of(c, r->repo, name, "", fresh, err));
    TRY(make_parents(path, err));
    int fd = open(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644);
    size_t n = strlen(commit);
    bool ok = fd >= 0 && write(fd, commit, n) == (ssize_t)n;
    enum status s = ok ? STATUS_OK : io_error(fresh, err);
    if (fd >= 0 && close(fd) != 0 && s == STATUS_OK)
        s = io_error(fresh, err);
    if (s == STATUS_OK && rename(fresh, path) != 0)
        s = io_error(path, err);
    if (s != STATUS_OK && fd >= 0)
        (void)unlink(fresh);
    return s;
}

static enum status give_file(const struct hf_cache *c, const struct fetch_net *net,
                             const struct model_ref *r, const struct pull_list *l,
                             const struct pull_file *f, const char *folder, struct error *err)
{
    char from[PATH_MAX], blob[PATH_MAX], path[PATH_MAX], below[PATH_MAX];
    const char *name = name_there(f);
    int n = snprintf(from, sizeof from, "%s/%s", folder, f->name);
    int m = snprintf(below, sizeof below, "%s/%s", l->commit, name);
    if (n < 0 || n >= PATH_MAX || m < 0 || m >= PATH_MAX || !model_ref_name_is_safe(name))
        return error_set(
            err, STATUS_INVALID,
            "cannot add %s to huggingface_hub's cache: this file name is not allowed there",
            f->name);
    TRY(path_of(c, r->repo, "blobs", blob_id(f), blob, err));
    TRY(path_of(c, r->repo, "snapshots", below, path, err));
    TRY(give_blob(c, net, f, from, blob, err));
    return give_link(path, name, blob_id(f), err);
}

enum status hf_cache_give(const struct hf_cache *c, const struct fetch_net *net,
                          const struct model_ref *r, const struct pull_list *l, const char *folder,
                          struct error *err)
{
    if (!c->folder || !c->writes)
        return STATUS_OK;
    for (uint32_t i = 0; i < l->n_files; i++)
        if (blob_id(&l->files[i])[0])
            TRY(give_file(c, net, r, l, &l->files[i], folder, err));
    return give_ref(c, r, l->commit, err);
}
