/* Fetches one file in one stream into NAME.part, which is then renamed to the file's name.
 * parallel.c calls `pull_file_fetch` on its threads. common's HTTP client passes the bytes to
 * `on_data`, which writes and hashes them. `receive` retries after a temporary failure.
 * Invariants: the bytes of an earlier run are hashed first, so the final hash covers the whole
 * file. Nothing is written after the lock was lost. NAME.part is renamed only when size and hash
 * are right. */
#include "cli/pull/files/file.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/pull/files/list.h"
#include "cli/pull/files/part.h"
#include "cli/pull/files/progress.h"
#include "cli/pull/files/ranges.h"
#include "cli/pull/files/source.h"
#include "cli/pull/request/aws_credentials.h"
#include "cli/pull/request/retry.h"
#include "common/base/mem.h"

enum { TRIES = 2 };

struct incoming {
    const struct fetch_net *net;
    const struct pull_file *f;
    struct pull_progress *progress;
    struct pull_lock *lock;
    const char *part; /* path of NAME.part */
    int fd;
    struct pull_digests digests;
    uint64_t at, high; /* at: bytes written until now; high: largest value of `at` so far */
    struct error err;  /* error of a callback */
};

uint64_t pull_file_have(const struct pull_file *f, const char *folder)
{
    char path[PATH_MAX];
    struct stat st;
    struct error err;
    if (pull_part_path(folder, f->name, "", path, &err) == STATUS_OK &&
        pull_part_has_size(path, f->n_bytes))
        return f->n_bytes;
    if (pull_ranges_wanted(f))
        return pull_ranges_have(f, folder);
    if (pull_part_path(folder, f->name, ".part", path, &err) != STATUS_OK || stat(path, &st) != 0 ||
        !S_ISREG(st.st_mode) || (uint64_t)st.st_size > f->n_bytes)
        return 0;
    return (uint64_t)st.st_size;
}

uint64_t pull_file_room(const struct pull_file *f, const char *folder)
{
    enum { STAT_BLOCK = 512 }; /* bytes that st_blocks counts as one, on every file system */
    char path[PATH_MAX];
    struct stat st;
    struct error err;
    const uint64_t have = pull_file_have(f, folder);
    if (pull_part_path(folder, f->name, ".part", path, &err) != STATUS_OK || stat(path, &st) != 0 ||
        !S_ISREG(st.st_mode) || st.st_size <= 0)
        return have;
    const uint64_t taken = (uint64_t)st.st_blocks * STAT_BLOCK;
    const uint64_t own = taken < f->n_bytes ? taken : f->n_bytes;
    return own > have ? own : have;
}

/* ---- incoming bytes ---- */

/* Restarts the fetch from the file's first byte. */
static bool start_over(struct incoming *in)
{
    if (!pull_part_may_write(in->f, in->lock, &in->err))
        return false;
    pull_progress_take_back(in->progress, in->at);
    in->at = 0;
    if (ftruncate(in->fd, 0) != 0) {
        (void)pull_part_error(in->part, &in->err);
        return false;
    }
    return pull_digests_start(&in->digests, in->f, &in->err) == STATUS_OK;
}

static bool on_begin(void *ctx, const struct fetch_answer *a)
{
    struct incoming *in = ctx;
    if (a->total != FETCH_UNKNOWN && a->total != in->f->n_bytes) {
        error_set(&in->err, STATUS_PROTOCOL,
                  "cannot download %s: its size at %s is %llu bytes, but the list of files says "
                  "%llu. Run the same command again",
                  in->f->name, a->host, (unsigned long long)a->total,
                  (unsigned long long)in->f->n_bytes);
        return false;
    }
    if (a->begin == 0 && in->at > 0) /* the server supports no ranges, or the file has changed */
        return start_over(in);
    if (a->begin != in->at) {
        error_set(&in->err, STATUS_PROTOCOL,
                  "cannot download %s: %s sent another part of the file than requested. Run the "
                  "same command again",
                  in->f->name, a->host);
        return false;
    }
    return true;
}

static bool on_data(void *ctx, struct str piece)
{
    struct incoming *in = ctx;
    if (piece.len > in->f->n_bytes - in->at) {
        error_set(&in->err, STATUS_PROTOCOL,
                  "cannot download %s: the server sent more than the %llu bytes in the list of "
                  "files. Run the same command again",
                  in->f->name, (unsigned long long)in->f->n_bytes);
        return false;
    }
    if (!pull_part_may_write(in->f, in->lock, &in->err))
        return false;
    if (pull_part_write(in->fd, in->part, piece, in->at, &in->err) != STATUS_OK)
        return false;
    if (!pull_digests_add(&in->digests, piece.ptr, piece.len)) {
        error_set(&in->err, STATUS_INTERNAL,
                  "cannot check the hash of %s: OpenSSL failed. Run the same command again",
                  in->f->name);
        return false;
    }
    in->at += piece.len;
    pull_progress_add(in->progress, piece.len);
    return true;
}

/* Makes one attempt. STATUS_AGAIN: bytes are missing; *answer, *how and *err have the reason. */
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
                                    .session = source->session,
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
    if (fetch_is_stopped(source->net))
        return error_set(err, STATUS_CLOSED, "the download was stopped by a signal");
    if (*how == STATUS_OK && (answer->code == 200 || answer->code == 206))
        *how = error_set(
            err, STATUS_IO,
            "%s closed the connection before the file was complete. Run the same command again",
            answer->host);
    return STATUS_AGAIN;
}

/* Fetches until the file has all its bytes. The hash is checked later. */
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
        if (fetch_is_stopped(source->net))
            return error_set(err, STATUS_CLOSED, "the download was stopped by a signal");
        return how == STATUS_OK ? pull_explain(&a, &source->words, err)
                                : error_prefix(err, how, "%s", in->f->name);
    }
    return s;
}

static enum status fetch_part(const struct pull_source *source, struct incoming *in, char *sha256,
                              struct error *err)
{
    struct stat st;
    in->fd = open(in->part, O_RDWR | O_CREAT | O_CLOEXEC | (source->follows_links ? 0 : O_NOFOLLOW),
                  0644);
    if (in->fd < 0 || fstat(in->fd, &st) != 0)
        return pull_part_error(in->part, err);
    uint64_t have = (uint64_t)st.st_size;
    /* a part that is too long is not used, as in pull_file_have */
    if (have > in->f->n_bytes) {
        have = 0;
        if (ftruncate(in->fd, 0) != 0)
            return pull_part_error(in->part, err);
    }
    TRY(pull_digests_start(&in->digests, in->f, err));
    TRY(pull_digests_read(&in->digests, in->net, in->fd, in->part, &in->at, have, err));
    in->high = in->at;
    for (int i = 0; i < TRIES; i++) {
        TRY(receive(source, in, err));
        if (pull_digests_end(&in->digests, in->f, sha256))
            return fsync(in->fd) == 0 ? STATUS_OK : pull_part_error(in->part, err);
        source->net->say(
            "the downloaded file does not match its hash: downloading it again from the start");
        if (!start_over(in)) {
            *err = in->err;
            return err->status;
        }
    }
    return error_set(
        err, STATUS_PROTOCOL,
        "%s was downloaded twice, both times with SHA-256 %s, which differs from the list of "
        "files%s%s. Check the mirror or proxy, then run the same command again",
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
    TRY(pull_part_path(folder, f->name, "", path, err));
    TRY(pull_part_path(folder, f->name, ".part", part, err));
    pull_progress_name(progress, f->name);
    if (pull_part_has_size(path, f->n_bytes)) {
        memcpy(sha256, f->sha256, 65);
        return f->sha256[0] ? STATUS_OK : pull_file_hash(source->net, path, sha256, err);
    }
    TRY(pull_part_parents(folder, path, err));
    enum status s = fetch_part(source, &in, sha256, err);
    if (in.fd >= 0 && close(in.fd) != 0 && s == STATUS_OK)
        s = pull_part_error(part, err);
    pull_digests_free(&in.digests);
    if (s == STATUS_OK && !pull_part_may_write(f, source->lock, err))
        s = err->status;
    if (s == STATUS_OK && rename(part, path) != 0)
        s = pull_part_error(path, err);
    return s;
}
