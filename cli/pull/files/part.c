#include "cli/pull/files/part.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/pull/files/list.h"
#include "cli/pull/files/lock.h"
#include "common/base/mem.h"

enum { BLOCK = 1 << 20 };

/* ---- paths ---- */

enum status pull_part_path(const char *folder, const char *name, const char *end, char *out,
                           struct error *err)
{
    int n = snprintf(out, PATH_MAX, "%s/%s%s", folder, name, end);
    return n > 0 && n < PATH_MAX ? STATUS_OK
                                 : error_set(err, STATUS_INVALID,
                                             "the path of the file %s in the cache is too long. "
                                             "Set COX_CACHE to a shorter path",
                                             name);
}

bool pull_part_has_size(const char *path, uint64_t n_bytes)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode) && (uint64_t)st.st_size == n_bytes;
}

enum status pull_part_parents(const char *folder, const char *path, struct error *err)
{
    char parent[PATH_MAX];
    for (const char *c = path + strlen(folder) + 1; (c = strchr(c, '/')); c++) {
        snprintf(parent, sizeof parent, "%.*s", (int)(c - path), path);
        if (mkdir(parent, 0777) != 0 && errno != EEXIST)
            return error_set(err, STATUS_IO, "cannot create the folder %s: %s", parent,
                             strerror(errno));
    }
    return STATUS_OK;
}

enum status pull_part_error(const char *path, struct error *err)
{
    if (errno == ENOSPC || errno == EDQUOT)
        return error_set(err, STATUS_LIMIT,
                         "cannot write %s: %s. Free some disk space and run the same command again "
                         "(the downloaded part is kept), or set COX_CACHE to another folder",
                         path, strerror(errno));
    return error_set(err, STATUS_IO, "cannot write %s: %s", path, strerror(errno));
}

enum status pull_part_write(int fd, const char *path, struct str piece, uint64_t at,
                            struct error *err)
{
    for (size_t done = 0; done < piece.len;) {
        ssize_t n = pwrite(fd, piece.ptr + done, piece.len - done, (off_t)(at + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return pull_part_error(path, err);
        done += (size_t)n;
    }
    return STATUS_OK;
}

bool pull_part_may_write(const struct pull_file *f, struct pull_lock *lock, struct error *err)
{
    if (!lock || pull_lock_may_write(lock))
        return true;
    error_set(err, STATUS_CLOSED,
              "%s: another process has taken over the download, because this one paused for too "
              "long. Run the same command again",
              f->name);
    return false;
}

/* ---- hashes ---- */

void pull_digests_free(struct pull_digests *d)
{
    digest_free(d->sha256);
    digest_free(d->git);
    *d = (struct pull_digests){0};
}

enum status pull_digests_start(struct pull_digests *d, const struct pull_file *f, struct error *err)
{
    pull_digests_free(d);
    d->sha256 = digest_new(DIGEST_SHA256);
    if (f->git_id[0]) { /* git hashes a header in front of the bytes */
        char head[40];
        int n = snprintf(head, sizeof head, "blob %llu", (unsigned long long)f->n_bytes);
        d->git = digest_new(DIGEST_SHA1);
        if (!d->git || !digest_add(d->git, head, (size_t)n + 1))
            return error_set(
                err, STATUS_INTERNAL,
                "cannot check the hash of %s: OpenSSL has no SHA-1. Check its configuration",
                f->name);
    }
    return d->sha256
               ? STATUS_OK
               : error_set(
                     err, STATUS_INTERNAL,
                     "cannot check the hash of %s: OpenSSL has no SHA-256. Check its configuration",
                     f->name);
}

bool pull_digests_add(struct pull_digests *d, const void *bytes, size_t n)
{
    return digest_add(d->sha256, bytes, n) && (!d->git || digest_add(d->git, bytes, n));
}

enum status pull_digests_read(struct pull_digests *d, const struct fetch_net *net, int fd,
                              const char *path, uint64_t *at, uint64_t end, struct error *err)
{
    char *block = mem_alloc(BLOCK);
    enum status s = STATUS_OK;
    while (s == STATUS_OK && *at < end) {
        size_t want = end - *at < BLOCK ? (size_t)(end - *at) : BLOCK;
        ssize_t n = pread(fd, block, want, (off_t)*at);
        if (fetch_is_stopped(net))
            s = error_set(err, STATUS_CLOSED, "the download was stopped by a signal");
        else if (n < 0 && errno == EINTR)
            continue;
        else if (n <= 0)
            s = n < 0 ? pull_part_error(path, err)
                      : error_set(err, STATUS_IO,
                                  "cannot read %s: the file became shorter meanwhile. Run the same "
                                  "command again",
                                  path);
        else if (!pull_digests_add(d, block, (size_t)n))
            s = error_set(err, STATUS_INTERNAL,
                          "cannot check the hash of %s: OpenSSL failed. Run the same command again",
                          path);
        else
            *at += (uint64_t)n;
    }
    mem_free(block);
    return s;
}

bool pull_digests_end(struct pull_digests *d, const struct pull_file *f, char *sha256)
{
    char git[DIGEST_HEX_MAX] = "";
    digest_end(d->sha256, sha256);
    if (d->git)
        digest_end(d->git, git);
    return (!f->sha256[0] || strcmp(f->sha256, sha256) == 0) &&
           (!d->git || strcmp(f->git_id, git) == 0);
}

/* Hashes a whole file on the disk. Returns its SHA-256, and whether it matches the hash of file
 * `f`. */
static enum status hash_whole(const struct fetch_net *net, const struct pull_file *f,
                              const char *path, char *sha256, struct error *err)
{
    struct pull_digests d = {0};
    struct stat st;
    uint64_t at = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) != 0) {
        enum status failed = pull_part_error(path, err);
        if (fd >= 0)
            (void)close(fd);
        return failed;
    }
    enum status s = pull_digests_start(&d, f, err);
    if (s == STATUS_OK)
        s = pull_digests_read(&d, net, fd, path, &at, (uint64_t)st.st_size, err);
    if (s == STATUS_OK && !pull_digests_end(&d, f, sha256))
        s = error_set(
            err, STATUS_PROTOCOL,
            "%s is damaged: its hash differs from its name. Delete it, then fetch it again", path);
    pull_digests_free(&d);
    (void)close(fd);
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
