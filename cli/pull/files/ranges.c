/* Fetches one large file in ranges of 16 MiB that several threads fetch at once (ranges.h has
 * the files' layout).
 * parallel.c calls `pull_ranges_next` under its mutex, `pull_ranges_fetch` on any thread, and
 * `pull_ranges_finish` once. `hash_on` hashes the ranges that follow each other from the start.
 * Invariants: the byte of a range is written to the list after the range's own bytes. `is_here`
 * is atomic. `mutex` guards the hash, and a thread that finds `mutex` locked does not wait. The
 * file gets its name only when its hash is right. */
#include "cli/pull/files/ranges.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/pull/files/list.h"
#include "cli/pull/files/part.h"
#include "cli/pull/files/progress.h"
#include "cli/pull/files/source.h"
#include "cli/pull/request/aws_credentials.h"
#include "cli/pull/request/retry.h"
#include "common/base/mem.h"

enum { TRIES = 2 };
#define RANGES ".part.ranges"

struct pull_ranges {
    const struct pull_file *f;
    struct pull_progress *progress;
    char path[PATH_MAX], part[PATH_MAX], ranges[PATH_MAX];
    int fd, ranges_fd;
    uint32_t n, i_next, n_tries;
    unsigned char *is_here; /* [n] flags, atomic: set after a range is written, read by the hash */
    atomic_bool is_whole;   /* the server answered a range with the whole file */
    pthread_mutex_t mutex;  /* guards `digests` and `hashed` */
    struct pull_digests digests;
    uint64_t hashed;
};

static uint32_t n_ranges(const struct pull_file *f)
{
    return (uint32_t)((f->n_bytes + PULL_RANGE_BYTES - 1) / PULL_RANGE_BYTES);
}

bool pull_ranges_wanted(const struct pull_file *f)
{
    return f->n_bytes != FETCH_UNKNOWN && f->n_bytes > PULL_RANGE_BYTES;
}

static uint64_t begin_of(uint32_t i)
{
    return i * PULL_RANGE_BYTES;
}

static uint64_t end_of(const struct pull_file *f, uint32_t i)
{
    uint64_t end = begin_of(i) + PULL_RANGE_BYTES;
    return end < f->n_bytes ? end : f->n_bytes;
}

/* ---- parts of an earlier run ---- */

/* Fills is_here[n] from the list. A part without a list was fetched in one stream, so all ranges
 * up to its end are complete. */
static void read_ranges(const struct pull_file *f, int part_fd, int ranges_fd,
                        unsigned char *is_here)
{
    uint32_t n = n_ranges(f);
    struct stat part = {0}, list = {0};
    memset(is_here, 0, n);
    if (part_fd < 0 || fstat(part_fd, &part) != 0 || (uint64_t)part.st_size > f->n_bytes)
        return;
    if (ranges_fd < 0 || fstat(ranges_fd, &list) != 0 || list.st_size == 0) {
        memset(is_here, 1, (size_t)((uint64_t)part.st_size / PULL_RANGE_BYTES));
        return;
    }
    if (list.st_size != (off_t)n || pread(ranges_fd, is_here, n, 0) != (ssize_t)n) {
        memset(is_here, 0, n);
        return;
    }
    for (uint32_t i = 0; i < n; i++)
        is_here[i] = is_here[i] == '1' && end_of(f, i) <= (uint64_t)part.st_size;
}

static uint64_t bytes_of(const struct pull_file *f, const unsigned char *is_here)
{
    uint64_t n_bytes = 0;
    for (uint32_t i = 0; i < n_ranges(f); i++)
        n_bytes += is_here[i] ? end_of(f, i) - begin_of(i) : 0;
    return n_bytes;
}

uint64_t pull_ranges_have(const struct pull_file *f, const char *folder)
{
    char part[PATH_MAX], ranges[PATH_MAX];
    struct error err;
    if (pull_part_path(folder, f->name, ".part", part, &err) != STATUS_OK ||
        pull_part_path(folder, f->name, RANGES, ranges, &err) != STATUS_OK)
        return 0;
    int part_fd = open(part, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    int ranges_fd = open(ranges, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    unsigned char *is_here = mem_alloc(n_ranges(f));
    read_ranges(f, part_fd, ranges_fd, is_here);
    uint64_t n_bytes = bytes_of(f, is_here);
    mem_free(is_here);
    if (part_fd >= 0)
        (void)close(part_fd);
    if (ranges_fd >= 0)
        (void)close(ranges_fd);
    return n_bytes;
}

/* Writes the whole list, so that its size shows that it is complete. */
static enum status write_ranges(struct pull_ranges *r, struct error *err)
{
    char *text = mem_alloc(r->n);
    for (uint32_t i = 0; i < r->n; i++)
        text[i] = r->is_here[i] ? '1' : '0';
    ssize_t n = pwrite(r->ranges_fd, text, r->n, 0);
    mem_free(text);
    return n == (ssize_t)r->n && ftruncate(r->ranges_fd, (off_t)r->n) == 0
               ? STATUS_OK
               : pull_part_error(r->ranges, err);
}

static enum status open_files(struct pull_ranges *r, const struct pull_source *source,
                              const char *folder, struct error *err)
{
    struct stat st;
    TRY(pull_part_path(folder, r->f->name, "", r->path, err));
    TRY(pull_part_path(folder, r->f->name, ".part", r->part, err));
    TRY(pull_part_path(folder, r->f->name, RANGES, r->ranges, err));
    TRY(pull_part_parents(folder, r->path, err));
    r->fd = open(r->part, O_RDWR | O_CREAT | O_CLOEXEC | (source->follows_links ? 0 : O_NOFOLLOW),
                 0644);
    if (r->fd < 0 || fstat(r->fd, &st) != 0 ||
        ((uint64_t)st.st_size > r->f->n_bytes && ftruncate(r->fd, 0) != 0))
        return pull_part_error(r->part, err);
    r->ranges_fd = open(r->ranges, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (r->ranges_fd < 0)
        return pull_part_error(r->ranges, err);
    read_ranges(r->f, r->fd, r->ranges_fd, r->is_here);
    TRY(write_ranges(r, err));
    return pull_digests_start(&r->digests, r->f, err);
}

enum status pull_ranges_open(const struct pull_source *source, const struct pull_file *f,
                             const char *folder, struct pull_progress *progress,
                             struct pull_ranges **out, struct error *err)
{
    struct pull_ranges *r = mem_zalloc(sizeof *r);
    r->f = f;
    r->progress = progress;
    r->fd = r->ranges_fd = -1;
    r->n = n_ranges(f);
    r->is_here = mem_alloc(r->n);
    (void)pthread_mutex_init(&r->mutex, NULL);
    enum status s = open_files(r, source, folder, err);
    if (s != STATUS_OK) {
        pull_ranges_close(r);
        r = NULL;
    }
    *out = r;
    return s;
}

void pull_ranges_close(struct pull_ranges *r)
{
    if (!r)
        return;
    if (r->fd >= 0)
        (void)close(r->fd);
    if (r->ranges_fd >= 0)
        (void)close(r->ranges_fd);
    pull_digests_free(&r->digests);
    (void)pthread_mutex_destroy(&r->mutex);
    mem_free(r->is_here);
    mem_free(r);
}

/* ---- one range ---- */

static bool is_here(const struct pull_ranges *r, uint32_t i)
{
    return __atomic_load_n(&r->is_here[i], __ATOMIC_ACQUIRE);
}

bool pull_ranges_next(struct pull_ranges *r, uint32_t *i)
{
    if (pull_ranges_is_taken(r))
        return false;
    *i = r->i_next++;
    return true;
}

bool pull_ranges_is_taken(struct pull_ranges *r)
{
    while (r->i_next < r->n && is_here(r, r->i_next))
        r->i_next++;
    return r->i_next == r->n || pull_ranges_is_one_stream(r);
}

bool pull_ranges_is_one_stream(const struct pull_ranges *r)
{
    return atomic_load(&r->is_whole);
}

struct incoming {
    struct pull_ranges *r;
    struct pull_lock *lock;
    uint64_t begin, at, high, end;
    struct error err; /* error of a callback */
};

static bool on_begin(void *ctx, const struct fetch_answer *a)
{
    struct incoming *in = ctx;
    const struct pull_file *f = in->r->f;
    bool has_changed = f->etag[0] && a->etag[0] && strcmp(f->etag, a->etag) != 0;
    if (a->code == 200 || has_changed) {
        atomic_store(&in->r->is_whole, true);
        error_set(&in->err, STATUS_UNSUPPORTED,
                  "cannot download %s in parts: the server sends only the whole file", f->name);
        return false;
    }
    if (a->total != FETCH_UNKNOWN && a->total != f->n_bytes) {
        error_set(&in->err, STATUS_PROTOCOL,
                  "cannot download %s: its size at %s is %llu bytes, but the list of files says "
                  "%llu. Run the same command again",
                  f->name, a->host, (unsigned long long)a->total, (unsigned long long)f->n_bytes);
        return false;
    }
    if (a->begin != in->at) {
        error_set(&in->err, STATUS_PROTOCOL,
                  "cannot download %s: %s sent another part of the file than requested. Run the "
                  "same command again",
                  f->name, a->host);
        return false;
    }
    return true;
}

static bool on_data(void *ctx, struct str piece)
{
    struct incoming *in = ctx;
    struct pull_ranges *r = in->r;
    if (piece.len > in->end - in->at) {
        error_set(&in->err, STATUS_PROTOCOL,
                  "cannot download %s: the server sent more bytes than requested. Run the same "
                  "command again",
                  r->f->name);
        return false;
    }
    if (atomic_load(&r->is_whole)) {
        error_set(&in->err, STATUS_UNSUPPORTED,
                  "cannot download %s in parts: the server sends only the whole file", r->f->name);
        return false;
    }
    if (!pull_part_may_write(r->f, in->lock, &in->err))
        return false;
    if (pull_part_write(r->fd, r->part, piece, in->at, &in->err) != STATUS_OK)
        return false;
    in->at += piece.len;
    pull_progress_add(r->progress, piece.len);
    return true;
}

/* Makes one attempt. STATUS_AGAIN: bytes are missing; *answer, *how and *err have the reason. */
static enum status receive_once(const struct pull_source *source, struct incoming *in,
                                struct fetch_answer *answer, enum status *how, struct error *err)
{
    const struct pull_file *f = in->r->f;
    struct aws_keys keys;
    if (source->aws)
        TRY(aws_credentials_keys(source->aws, &keys, err));
    const struct fetch_call call = {.url = f->url,
                                    .bearer = source->bearer,
                                    .keys = source->aws ? &keys : NULL,
                                    .user = source->user,
                                    .session = source->session,
                                    .if_range = f->etag[0] ? f->etag : NULL,
                                    .from = in->at,
                                    .to = in->end,
                                    .on_begin = on_begin,
                                    .on_data = on_data,
                                    .ctx = in};
    *how = fetch_get(source->net, &call, answer, err);
    if (in->err.status != STATUS_OK) {
        *err = in->err;
        return err->status;
    }
    if (in->at == in->end)
        return STATUS_OK;
    if (fetch_is_stopped(source->net))
        return error_set(err, STATUS_CLOSED, "the download was stopped by a signal");
    if (*how == STATUS_OK && answer->code == 206)
        *how = error_set(err, STATUS_IO,
                         "%s closed the connection before a part of the file was complete. Run the "
                         "same command again",
                         answer->host);
    return STATUS_AGAIN;
}

static enum status receive(const struct pull_source *source, struct incoming *in, struct error *err)
{
    struct pull_retry retry = {.net = source->net};
    struct fetch_answer a;
    enum status how = STATUS_OK;
    for (;;) {
        enum status s = receive_once(source, in, &a, &how, err);
        if (s != STATUS_AGAIN)
            return s;
        if (in->at > in->high) {
            in->high = in->at;
            retry.n_failures = 0;
        }
        if (pull_retry_again(&retry, how, &a, err))
            continue;
        if (fetch_is_stopped(source->net))
            return error_set(err, STATUS_CLOSED, "the download was stopped by a signal");
        return how == STATUS_OK ? pull_explain(&a, &source->words, err)
                                : error_prefix(err, how, "%s", in->r->f->name);
    }
}

/* Hashes the complete ranges that follow the hashed bytes. One thread at a time does this. Other
 * threads do not wait. */
static enum status hash_on(struct pull_ranges *r, const struct fetch_net *net, struct error *err)
{
    enum status s = STATUS_OK;
    if (pthread_mutex_trylock(&r->mutex) != 0)
        return STATUS_OK;
    uint32_t i = (uint32_t)(r->hashed / PULL_RANGE_BYTES);
    for (; s == STATUS_OK && i < r->n && is_here(r, i); i++)
        s = pull_digests_read(&r->digests, net, r->fd, r->part, &r->hashed, end_of(r->f, i), err);
    (void)pthread_mutex_unlock(&r->mutex);
    return s;
}

enum status pull_ranges_fetch(struct pull_ranges *r, const struct pull_source *source, uint32_t i,
                              struct error *err)
{
    struct incoming in = {.r = r,
                          .lock = source->lock,
                          .begin = begin_of(i),
                          .at = begin_of(i),
                          .high = begin_of(i),
                          .end = end_of(r->f, i)};
    enum status s = receive(source, &in, err);
    if (s != STATUS_OK) {
        pull_progress_take_back(r->progress, in.at - in.begin);
        return s;
    }
    if (pwrite(r->ranges_fd, "1", 1, (off_t)i) != 1)
        return pull_part_error(r->ranges, err);
    __atomic_store_n(&r->is_here[i], 1, __ATOMIC_RELEASE);
    return hash_on(r, source->net, err);
}

/* ---- the end ---- */

static enum status start_over(struct pull_ranges *r, struct error *err)
{
    pull_progress_take_back(r->progress, r->f->n_bytes);
    memset(r->is_here, 0, r->n);
    r->i_next = 0;
    r->hashed = 0;
    TRY(write_ranges(r, err));
    return pull_digests_start(&r->digests, r->f, err);
}

/* Publishes the file. The list is removed first, because a part without a list counts as
 * complete up to its end. */
static enum status publish(struct pull_ranges *r, struct error *err)
{
    if (fsync(r->fd) != 0)
        return pull_part_error(r->part, err);
    if (unlink(r->ranges) != 0 && errno != ENOENT)
        return pull_part_error(r->ranges, err);
    return rename(r->part, r->path) == 0 ? STATUS_OK : pull_part_error(r->path, err);
}

enum status pull_ranges_finish(struct pull_ranges *r, const struct pull_source *source,
                               char *sha256, struct error *err)
{
    TRY(hash_on(r, source->net, err));
    if (!pull_part_may_write(r->f, source->lock, err))
        return err->status;
    if (r->hashed == r->f->n_bytes && pull_digests_end(&r->digests, r->f, sha256))
        return publish(r, err);
    TRY(start_over(r, err));
    if (++r->n_tries == TRIES)
        return error_set(
            err, STATUS_PROTOCOL,
            "%s was downloaded twice, both times with SHA-256 %s, which differs from the list of "
            "files%s%s. Check the mirror or proxy, then run the same command again",
            r->f->name, sha256, r->f->sha256[0] ? ": " : "", r->f->sha256);
    source->net->say(
        "the downloaded file does not match its hash: downloading it again from the start");
    return STATUS_AGAIN;
}

enum status pull_ranges_drop(struct pull_ranges *r, struct error *err)
{
    pull_progress_take_back(r->progress, bytes_of(r->f, r->is_here));
    if (unlink(r->ranges) != 0 && errno != ENOENT)
        return pull_part_error(r->ranges, err);
    return ftruncate(r->fd, 0) == 0 ? STATUS_OK : pull_part_error(r->part, err);
}
