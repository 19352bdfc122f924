/* A file's bytes are hashed as they come. What a run before this one has left is hashed first, so
 * that at the end the hash is of all that lies there, whoever wrote it. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/pull/pull_files.h"
#include "cli/pull/pull_lock.h"
#include "common/base/mem.h"
#include "common/net/digest.h"

enum { BLOCK = 1 << 20, TRIES = 2 };

struct incoming {
    const struct fetch_net *net;
    const struct pull_file *f;
    struct pull_progress *progress;
    struct pull_lock *lock;
    const char *part; /* path */
    int fd;
    struct digest *sha256, *git; /* git: NULL when no id is known */
    uint64_t at, high;           /* bytes here; the most there ever were */
    struct error err;            /* of a callback */
};

/* ---- paths ---- */

static enum status path_of(const char *folder, const char *name, const char *end, char *out,
                           struct error *err)
{
    int n = snprintf(out, PATH_MAX, "%s/%s%s", folder, name, end);
    return n > 0 && n < PATH_MAX ? STATUS_OK
                                 : error_set(err, STATUS_INVALID, "%s: the path is too long", name);
}

static bool has_size(const char *path, uint64_t n_bytes)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode) && (uint64_t)st.st_size == n_bytes;
}

uint64_t pull_file_have(const struct pull_file *f, const char *folder)
{
    char path[PATH_MAX];
    struct stat st;
    struct error err;
    if (path_of(folder, f->name, "", path, &err) == STATUS_OK && has_size(path, f->n_bytes))
        return f->n_bytes;
    if (path_of(folder, f->name, ".part", path, &err) != STATUS_OK || stat(path, &st) != 0 ||
        !S_ISREG(st.st_mode) || (uint64_t)st.st_size > f->n_bytes)
        return 0;
    return (uint64_t)st.st_size;
}

/* The folders of a name that has some. */
static enum status make_parents(const char *folder, const char *path, struct error *err)
{
    char parent[PATH_MAX];
    for (const char *c = path + strlen(folder) + 1; (c = strchr(c, '/')); c++) {
        snprintf(parent, sizeof parent, "%.*s", (int)(c - path), path);
        if (mkdir(parent, 0777) != 0 && errno != EEXIST)
            return error_set(err, STATUS_IO, "%s: %s", parent, strerror(errno));
    }
    return STATUS_OK;
}

static enum status io_error(const char *path, struct error *err)
{
    if (errno == ENOSPC || errno == EDQUOT)
        return error_set(err, STATUS_LIMIT,
                         "%s: %s: make room and run this again (what is here is kept), or set "
                         "COX_CACHE to another place",
                         path, strerror(errno));
    return error_set(err, STATUS_IO, "%s: %s", path, strerror(errno));
}

/* ---- hashes ---- */

static enum status digests_start(struct incoming *in, struct error *err)
{
    digest_free(in->sha256);
    digest_free(in->git);
    in->git = NULL;
    in->sha256 = digest_new(DIGEST_SHA256);
    if (in->f->git_id[0]) { /* what git hashes has a line of its own in front */
        char head[40];
        int n = snprintf(head, sizeof head, "blob %llu", (unsigned long long)in->f->n_bytes);
        in->git = digest_new(DIGEST_SHA1);
        if (!in->git || !digest_add(in->git, head, (size_t)n + 1))
            return error_set(err, STATUS_INTERNAL, "OpenSSL has no SHA-1");
    }
    return in->sha256 ? STATUS_OK : error_set(err, STATUS_INTERNAL, "OpenSSL has no SHA-256");
}

static bool digests_add(struct incoming *in, const void *bytes, size_t n)
{
    return digest_add(in->sha256, bytes, n) && (!in->git || digest_add(in->git, bytes, n));
}

/* n_bytes of the file at fd into the digests. */
static enum status hash_file(struct incoming *in, uint64_t n_bytes, struct error *err)
{
    char *block = mem_alloc(BLOCK);
    enum status s = STATUS_OK;
    while (s == STATUS_OK && in->at < n_bytes) {
        size_t want = n_bytes - in->at < BLOCK ? (size_t)(n_bytes - in->at) : BLOCK;
        ssize_t n = pread(in->fd, block, want, (off_t)in->at);
        if (in->net->is_stopped())
            s = error_set(err, STATUS_CLOSED, "stopped");
        else if (n < 0 && errno == EINTR)
            continue;
        else if (n <= 0)
            s = n < 0 ? io_error(in->part, err)
                      : error_set(err, STATUS_IO, "%s: became shorter", in->part);
        else if (!digests_add(in, block, (size_t)n))
            s = error_set(err, STATUS_INTERNAL, "OpenSSL does not hash");
        else
            in->at += (uint64_t)n;
    }
    mem_free(block);
    return s;
}

/* sha256 gets what was found. */
static bool is_right(struct incoming *in, char *sha256)
{
    char git[DIGEST_HEX_MAX] = "";
    digest_end(in->sha256, sha256);
    if (in->git)
        digest_end(in->git, git);
    return (!in->f->sha256[0] || strcmp(in->f->sha256, sha256) == 0) &&
           (!in->git || strcmp(in->f->git_id, git) == 0);
}

/* All of a file here; right: as f has it. */
static enum status hash_whole(const struct fetch_net *net, const struct pull_file *f,
                              const char *path, char *sha256, struct error *err)
{
    struct incoming in = {.net = net, .f = f, .part = path};
    struct stat st;
    in.fd = open(path, O_RDONLY | O_CLOEXEC);
    if (in.fd < 0 || fstat(in.fd, &st) != 0) {
        enum status failed = io_error(path, err);
        if (in.fd >= 0)
            (void)close(in.fd);
        return failed;
    }
    enum status s = digests_start(&in, err);
    if (s == STATUS_OK)
        s = hash_file(&in, (uint64_t)st.st_size, err);
    if (s == STATUS_OK && !is_right(&in, sha256))
        s = error_set(err, STATUS_PROTOCOL, "%s: damaged: its bytes are not those of its name",
                      path);
    digest_free(in.sha256);
    digest_free(in.git);
    (void)close(in.fd);
    return s;
}

enum status pull_file_check(const struct fetch_net *net, const struct pull_file *f,
                            const char *path, struct error *err)
{
    char sha256[DIGEST_HEX_MAX];
    return hash_whole(net, f, path, sha256, err);
}

enum status pull_file_hash(const struct fetch_net *net, const char *path, char *sha256,
                           struct error *err)
{
    const struct pull_file none = {0};
    return hash_whole(net, &none, path, sha256, err);
}

/* ---- what comes ---- */

/* False: this process was stopped for so long that its files are another's. */
static bool may_write(struct incoming *in)
{
    if (pull_lock_may_write(in->lock))
        return true;
    error_set(&in->err, STATUS_CLOSED,
              "%s: this process stood still for so long that another one has taken over: run it "
              "again",
              in->f->name);
    return false;
}

/* From the first byte on, all of it. */
static bool start_over(struct incoming *in)
{
    if (!may_write(in))
        return false;
    pull_progress_take_back(in->progress, in->at);
    in->at = 0;
    if (ftruncate(in->fd, 0) != 0) {
        (void)io_error(in->part, &in->err);
        return false;
    }
    return digests_start(in, &in->err) == STATUS_OK;
}

static bool on_begin(void *ctx, const struct fetch_answer *a)
{
    struct incoming *in = ctx;
    if (a->total != FETCH_UNKNOWN && a->total != in->f->n_bytes) {
        error_set(&in->err, STATUS_PROTOCOL, "%s: %s has %llu bytes of it, its listing says %llu",
                  in->f->name, a->host, (unsigned long long)a->total,
                  (unsigned long long)in->f->n_bytes);
        return false;
    }
    if (a->begin == 0 && in->at > 0) /* it knows no ranges, or the file has changed */
        return start_over(in);
    if (a->begin != in->at) {
        error_set(&in->err, STATUS_PROTOCOL, "%s: %s answers with another part than was asked for",
                  in->f->name, a->host);
        return false;
    }
    return true;
}

static bool on_data(void *ctx, struct str piece)
{
    struct incoming *in = ctx;
    if (piece.len > in->f->n_bytes - in->at) {
        error_set(&in->err, STATUS_PROTOCOL, "%s: more comes than the %llu bytes of its listing",
                  in->f->name, (unsigned long long)in->f->n_bytes);
        return false;
    }
    if (!may_write(in))
        return false;
    for (size_t done = 0; done < piece.len;) {
        ssize_t n = pwrite(in->fd, piece.ptr + done, piece.len - done, (off_t)(in->at + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            (void)io_error(in->part, &in->err);
            return false;
        }
        done += (size_t)n;
    }
    if (!digests_add(in, piece.ptr, piece.len)) {
        error_set(&in->err, STATUS_INTERNAL, "OpenSSL does not hash");
        return false;
    }
    in->at += piece.len;
    pull_progress_add(in->progress, piece.len);
    return true;
}

/* One attempt. AGAIN: not all is here; *answer and *err say why. */
static enum status receive_once(const struct pull_source *source, struct incoming *in,
                                struct fetch_answer *answer, enum status *how, struct error *err)
{
    struct aws_keys keys;
    if (source->aws)
        TRY(aws_credentials_keys(source->aws, &keys, err));
    const struct fetch_call call = {.url = in->f->url,
                                    .bearer = source->bearer,
                                    .keys = source->aws ? &keys : NULL,
                                    .user = source->user,
                                    .if_range = in->at > 0 && in->f->etag[0] ? in->f->etag : NULL,
                                    .from = in->at,
                                    .on_begin = on_begin,
                                    .on_data = on_data,
                                    .ctx = in};
    *how = fetch_get(source->net, &call, answer, err);
    if (in->err.status != STATUS_OK) {
        *err = in->err;
        return err->status;
    }
    if (in->at == in->f->n_bytes)
        return STATUS_OK;
    if (source->net->is_stopped())
        return error_set(err, STATUS_CLOSED, "stopped");
    if (*how == STATUS_OK && (answer->code == 200 || answer->code == 206))
        *how = error_set(err, STATUS_IO, "%s ended early", answer->host);
    return STATUS_AGAIN;
}

/* Until all bytes are here, whatever they are. */
static enum status receive(const struct pull_source *source, struct incoming *in, struct error *err)
{
    struct pull_retry retry = {.net = source->net};
    struct fetch_answer a;
    enum status s = in->at == in->f->n_bytes ? STATUS_OK : STATUS_AGAIN, how = STATUS_OK;
    while (s == STATUS_AGAIN) {
        s = receive_once(source, in, &a, &how, err);
        if (s != STATUS_AGAIN)
            break;
        if (in->at > in->high) {
            in->high = in->at;
            retry.n_failures = 0;
        }
        if (pull_retry_again(&retry, how, &a, err))
            continue;
        if (source->net->is_stopped())
            return error_set(err, STATUS_CLOSED, "stopped");
        return how == STATUS_OK ? pull_explain(&a, &source->words, err)
                                : error_prefix(err, how, "%s", in->f->name);
    }
    return s;
}

static enum status fetch_part(const struct pull_source *source, struct incoming *in, char *sha256,
                              struct error *err)
{
    struct stat st;
    in->fd = open(in->part, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (in->fd < 0 || fstat(in->fd, &st) != 0)
        return io_error(in->part, err);
    uint64_t have = (uint64_t)st.st_size;
    if (have > in->f->n_bytes) { /* pull_file_have has not counted it either */
        have = 0;
        if (ftruncate(in->fd, 0) != 0)
            return io_error(in->part, err);
    }
    TRY(digests_start(in, err));
    TRY(hash_file(in, have, err));
    in->high = in->at;
    for (int i = 0; i < TRIES; i++) {
        TRY(receive(source, in, err));
        if (is_right(in, sha256))
            return fsync(in->fd) == 0 ? STATUS_OK : io_error(in->part, err);
        source->net->say("the bytes are not those of the listing: once more from the start");
        if (!start_over(in)) {
            *err = in->err;
            return err->status;
        }
    }
    return error_set(err, STATUS_PROTOCOL,
                     "%s: came twice with SHA-256 %s, which is not what its listing says%s%s",
                     in->f->name, sha256, in->f->sha256[0] ? ": " : "", in->f->sha256);
}

enum status pull_file_fetch(const struct pull_source *source, const struct pull_file *f,
                            const char *folder, struct pull_progress *progress, char *sha256,
                            struct error *err)
{
    char path[PATH_MAX], part[PATH_MAX];
    struct incoming in = {.net = source->net,
                          .f = f,
                          .progress = progress,
                          .lock = source->lock,
                          .part = part,
                          .fd = -1};
    TRY(path_of(folder, f->name, "", path, err));
    TRY(path_of(folder, f->name, ".part", part, err));
    progress->name = f->name;
    if (has_size(path, f->n_bytes)) {
        memcpy(sha256, f->sha256, 65);
        return f->sha256[0] ? STATUS_OK : pull_file_hash(source->net, path, sha256, err);
    }
    TRY(make_parents(folder, path, err));
    enum status s = fetch_part(source, &in, sha256, err);
    if (in.fd >= 0 && close(in.fd) != 0 && s == STATUS_OK)
        s = io_error(part, err);
    digest_free(in.sha256);
    digest_free(in.git);
    if (s == STATUS_OK && !may_write(&in))
        s = (*err = in.err).status;
    if (s == STATUS_OK && rename(part, path) != 0)
        s = io_error(path, err);
    return s;
}
